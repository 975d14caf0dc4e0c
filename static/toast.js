// One short message over everything, with what takes it back. It stays until it is
// closed, used or replaced, or until it is too late to undo.

export class Toast {
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #late;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.text = /** @type {HTMLElement} */ (element.querySelector('span'));
    [this.action, this.close] = /** @type {NodeListOf<HTMLButtonElement>} */ (element.querySelectorAll('button'));
    this.close.addEventListener('click', () => this.hide());
  }

  /**
   * @param {string} text
   * @param {() => void} [undo]
   * @param {number} [until] milliseconds of the server's time, after which undo does nothing
   * @param {number} [now] the server's time
   */
  show(text, undo, until = 0, now = 0) {
    clearTimeout(this.#late);
    this.action.hidden = !undo;
    this.action.onclick = () => {
      this.hide();
      undo?.();
    };
    if (this.element.matches(':popover-open')) this.element.hidePopover(); // to the top again, above a drawer that came since
    this.element.showPopover();
    this.text.textContent = text; // only what changes while it is there is read out
    if (until > now) this.#late = setTimeout(() => this.hide(), Math.min(until - now, 2 ** 31 - 1));
    else if (!undo) this.#late = setTimeout(() => this.hide(), 8000);
  }

  hide() {
    clearTimeout(this.#late);
    if (this.element.matches(':popover-open')) this.element.hidePopover();
  }
}
