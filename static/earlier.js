// The messages above those on the page, and the reading position over a reload.

import { page } from './html.js';
import { all } from './log.js';

const key = (/** @type {string} */ session) => `semel.place.${session}`;

export class Earlier {
  /** @type {Promise<boolean> | undefined} */ #loading;

  /**
   * @param {object} with_
   * @param {string} with_.session
   * @param {import('./log.js').Log} with_.log
   * @param {import('./follow.js').Follow} with_.follow
   * @param {(url: string, init?: RequestInit) => Promise<Response>} with_.fetch
   * @param {(article: HTMLElement) => void} with_.prepare
   */
  constructor({ session, log, follow, fetch, prepare }) {
    this.session = session;
    this.log = log;
    this.follow = follow;
    this.fetch = fetch;
    this.prepare = prepare;
    this.link = /** @type {HTMLElement} */ (document.getElementById('earlier'));
    const [navigation] = performance.getEntriesByType('navigation');
    const again = /** @type {PerformanceNavigationTiming} */ (navigation)?.type !== 'navigate';
    const place = again ? this.#stored() : undefined;
    if (place && !place.end) this.#restore(place).finally(() => this.#watch());
    else this.#watch();
    addEventListener('pagehide', () => this.#store());
    this.link.addEventListener('click', (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.more();
    });
  }

  #watch() {
    const observer = new IntersectionObserver(async (seen) => {
      if (!seen.at(-1)?.isIntersecting || this.follow.following || !(await this.more())) return;
      observer.unobserve(this.link); // it may be near still
      observer.observe(this.link);
    }, { rootMargin: '1200px 0px' });
    observer.observe(this.link);
  }

  /** Fetches the messages above. @returns {Promise<boolean>} whether there were any */
  more() {
    return (this.#loading ??= this.#more().finally(() => (this.#loading = undefined)));
  }

  async #more() {
    const href = this.link.querySelector('a')?.getAttribute('href');
    if (this.link.hidden || !href) return false;
    let fresh;
    try {
      const response = await this.fetch(href, { headers: { Accept: 'text/html' }, cache: 'no-store', redirect: 'error' });
      fresh = page(await response.text());
    } catch {
      return false; // it stays a link
    }
    const log = fresh.querySelector('#log');
    // Another branch was shown meanwhile, or this is no page of ours.
    if (!log || this.link.querySelector('a')?.getAttribute('href') !== href) return false;
    const articles = all(log, 'article').filter((a) => !this.log.find(/** @type {any} */ (a.dataset.role), a.dataset.request ?? ''));
    const top = this.log.element.firstElementChild;
    this.keepInPlace(top, () => {
      for (const article of articles) {
        this.log.element.insertBefore(document.adoptNode(article), top);
        this.prepare(article);
      }
      this.adopt(fresh);
    });
    return articles.length > 0;
  }

  /** Takes over what a page says of the messages above it. @param {Document} fresh */
  adopt(fresh) {
    const link = fresh.getElementById('earlier');
    if (!link) return;
    this.link.hidden = link.hidden;
    this.link.querySelector('a')?.setAttribute('href', link.querySelector('a')?.getAttribute('href') ?? '');
  }

  /**
   * Changes the page so that an element stays where it is on screen.
   * @param {Element | null} element @param {() => void} change
   */
  keepInPlace(element, change) {
    const root = document.documentElement;
    root.style.overflowAnchor = 'none'; // or browsers that do the same do it twice
    const before = element?.getBoundingClientRect().top ?? 0;
    change();
    if (element?.isConnected) scrollBy({ top: element.getBoundingClientRect().top - before, behavior: 'instant' });
    requestAnimationFrame(() => (root.style.overflowAnchor = ''));
  }

  #store() {
    const top = this.log.element.getBoundingClientRect().top < 0 ? all(this.log.element, 'article').find((a) => a.getBoundingClientRect().bottom > 80) : undefined;
    const place = { end: this.follow.following || !top, role: top?.dataset.role, request: top?.dataset.request, top: top?.getBoundingClientRect().top };
    try {
      sessionStorage.setItem(key(this.session), JSON.stringify(place));
    } catch {
      // then the browser's own memory must do
    }
  }

  #stored() {
    try {
      return JSON.parse(sessionStorage.getItem(key(this.session)) ?? 'null');
    } catch {
      return undefined;
    }
  }

  /** @param {{role: any, request: string, top: number}} place */
  async #restore({ role, request, top }) {
    const loaded = document.readyState === 'complete' ? Promise.resolve() : new Promise((resume) => addEventListener('load', resume, { once: true }));
    let article = this.log.find(role, request);
    for (let n = 0; !article && n < 60 && (await this.more()); n++) article = this.log.find(role, request);
    await loaded;
    await new Promise((resume) => setTimeout(resume)); // after the browser put the page where it thinks it was
    if (!article?.isConnected) return;
    this.follow.release();
    // What comes near gets its real size only then, and moves the line again.
    let moved = false;
    for (const type of ['wheel', 'touchstart', 'keydown']) addEventListener(type, () => (moved = true), { once: true, passive: true });
    for (let still = 0, n = 0; still < 3 && n < 30 && !moved; n++) {
      const off = article.getBoundingClientRect().top - top;
      still = Math.abs(off) < 1 ? still + 1 : 0;
      if (off) scrollBy({ top: off, behavior: 'instant' });
      await new Promise((resume) => requestAnimationFrame(resume));
    }
  }
}
