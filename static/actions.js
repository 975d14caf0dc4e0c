// What a person decides about the actions that an answer asks for. The cards are the
// server's; without scripts their forms are posted as they are.

import { explain, t } from './strings.js';

export class Actions {
  /** @type {Set<string>} */ #busy = new Set(); // decisions under way

  /**
   * @param {object} of
   * @param {HTMLElement} of.element the messages
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   * @param {() => Promise<void>} of.refresh takes over the page as the server has it now
   * @param {(text: string) => void} of.announce
   */
  constructor({ element, fetch, refresh, announce }) {
    this.element = element;
    this.fetch = fetch;
    this.refresh = refresh;
    this.announce = announce;
    element.addEventListener('submit', (event) => {
      const form = /** @type {HTMLFormElement} */ (event.target);
      const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
      if (!form.dataset.do || !button) return;
      event.preventDefault();
      this.#post(form, button);
    });
  }

  /** One verdict for each time the card says something else: a second click finds it under way. @param {HTMLFormElement} form @param {HTMLButtonElement} button */
  async #post(form, button) {
    const card = /** @type {HTMLElement} */ (form.closest('.action'));
    const id = card.dataset.decision ?? '';
    if (this.#busy.has(id)) return;
    this.#busy.add(id);
    const buttons = [...form.querySelectorAll('button')];
    for (const b of buttons) b.disabled = true;
    card.setAttribute('aria-busy', 'true');
    const trouble = await this.#send(form, button.value);
    if (!trouble) this.announce(t('js.decided'));
    await this.refresh();
    this.#busy.delete(id);
    for (const b of buttons) b.disabled = false;
    card.removeAttribute('aria-busy');
    this.#say(form, trouble);
    if (document.activeElement === document.body || !document.activeElement?.isConnected) card.focus({ preventScroll: true });
  }

  /** @param {HTMLFormElement} form @param {string} value what the button says @returns {Promise<string>} what went wrong */
  async #send(form, value) {
    const data = new FormData(form);
    const reason = String(data.get('reason') ?? '');
    const decides = form.dataset.do === 'decide';
    const url = decides ? `/api/chat/decisions/${data.get('decision')}` : `/api/ops/outbox/${data.get('effect')}/${value}`;
    const body = decides ? { verdict: value, digest: data.get('digest'), reason } : { reason };
    try {
      const response = await this.fetch(url, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
        body: JSON.stringify(body),
      });
      return response.ok ? '' : explain(await response.json());
    } catch {
      return t('js.notHeard'); // it may be stored: the same again is safe
    }
  }

  /** @param {HTMLFormElement} form @param {string} trouble */
  #say(form, trouble) {
    const line = /** @type {HTMLElement | null} */ (form.querySelector('.trouble'));
    if (form.isConnected && line) {
      line.textContent = trouble;
      line.hidden = trouble === '';
    } else if (trouble) {
      this.announce(trouble);
    }
  }
}
