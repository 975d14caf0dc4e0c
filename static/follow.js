// Following the end of a growing answer: only while the reader is there. Any move
// up lets go at once; coming back to the end takes hold again.

const near = 24; // px from the end that still count as the end
const afterReload = 200; // the same, for where the browser put the reader back

export class Follow {
  following = false;
  #top = scrollY;

  /** @param {HTMLButtonElement} button leads back to the end */
  constructor(button) {
    this.button = button;
    addEventListener('wheel', (event) => event.deltaY < 0 && this.release(), { passive: true });
    addEventListener('scroll', () => this.#scrolled(), { passive: true });
    addEventListener('resize', () => this.#keepUp());
    button.addEventListener('click', () => this.jump());
    const [navigation] = performance.getEntriesByType('navigation');
    if (/** @type {PerformanceNavigationTiming} */ (navigation)?.type === 'navigate') this.following = true;
    else addEventListener('load', () => setTimeout(() => (this.following ||= this.#distance() <= afterReload)));
    new ResizeObserver(() => this.#keepUp()).observe(document.body);
  }

  /** Goes to the end and stays there. */
  jump() {
    this.following = true;
    this.button.hidden = true;
    this.#keepUp();
  }

  /** Tells a reader who is elsewhere that there is more. */
  grown() {
    if (!this.following) this.button.hidden = this.#atEnd();
  }

  #keepUp() {
    if (!this.following) return;
    scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' });
    this.#top = scrollY;
  }

  #scrolled() {
    if (this.#atEnd()) {
      this.following = true;
      this.button.hidden = true;
    } else if (scrollY < this.#top) {
      this.release();
    }
    this.#top = scrollY;
  }

  /** Lets go: the reader is to stay where they are. */
  release() {
    if (document.documentElement.scrollHeight > innerHeight) this.following = false;
  }

  #atEnd() {
    return this.#distance() <= near;
  }

  #distance() {
    return document.documentElement.scrollHeight - innerHeight - scrollY;
  }
}
