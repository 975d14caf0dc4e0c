// How the questions of a conversation are asked: model, system prompt, parameters.
// The form works without this, by a new page; with it, the page stays.

import { page } from './html.js';
import { explain, t } from './strings.js';

export class Panel {
  #touched = false;

  /**
   * @param {object} of
   * @param {HTMLElement} of.element
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   * @param {() => string} of.session the conversation, "" while the server has nothing of it
   * @param {(text: string) => void} of.say
   */
  constructor({ element, fetch, session, say }) {
    this.element = element;
    this.fetch = fetch;
    this.session = session;
    this.say = say;
    element.addEventListener('beforetoggle', (event) => {
      if (/** @type {ToggleEvent} */ (event).newState === 'open') this.#look();
    });
    element.addEventListener('input', () => (this.#touched = true));
    element.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#save(/** @type {HTMLFormElement} */ (event.target));
    });
  }

  // Shows what is stored now: another device may have changed it, and what was a new
  // conversation when the page came may be none. What is as it was stays in its place:
  // a button that is replaced while it is pressed is never clicked.
  async #look() {
    this.#touched = false;
    const session = this.session();
    try {
      const response = await this.fetch(session ? `/c/${session}` : '/', { headers: { Accept: 'text/html' }, cache: 'no-store', redirect: 'error' });
      const now = response.ok && page(await response.text()).querySelector('#panel');
      if (!now || this.#touched || session !== this.session()) return;
      const inside = this.element.contains(document.activeElement) ? document.activeElement?.id : '';
      for (const part of ['h2', 'form']) {
        const old = /** @type {HTMLElement} */ (this.element.querySelector(part));
        const fresh = /** @type {HTMLElement} */ (now.querySelector(part));
        if (!old.isEqualNode(fresh)) old.replaceWith(document.adoptNode(fresh));
        else if (old instanceof HTMLFormElement) old.reset(); // what was typed last time and not saved
      }
      if (inside) document.getElementById(inside)?.focus();
    } catch {
      // offline: what came with the page is still shown, and saving says what is wrong
    }
  }

  /** @param {HTMLFormElement} form */
  async #save(form) {
    const said = /** @type {HTMLElement} */ (form.querySelector('.said'));
    said.textContent = '';
    if (this.session() && form.elements.namedItem('section')) return; // it was of new conversations, and is being replaced
    try {
      const body = new URLSearchParams(/** @type {any} */ (new FormData(form)));
      const response = await this.fetch(form.action, { method: 'POST', body, redirect: 'manual' });
      if (response.type === 'opaqueredirect') {
        this.element.hidePopover();
        this.say(t('js.saved'));
        return;
      }
      const answer = page(await response.text());
      said.textContent = answer.querySelector('.trouble, main p')?.textContent ?? explain({});
    } catch {
      said.textContent = t('js.unreachable');
    }
  }
}
