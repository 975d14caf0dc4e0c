// What was sent while an answer runs: a list above the text field. Each line is an
// intent of its own, with its id, kept in the outbox, which sends it in its turn.
// Until then it can be changed, deleted, or sent before everything else.

import { clone } from './log.js';
import { t } from './strings.js';

/**
 * @typedef {import('./outbox.js').Entry} Entry
 */

export class Queue {
  /** @type {Map<string, HTMLElement>} the lines on screen by request id */ #lines = new Map();

  /**
   * @param {object} of
   * @param {HTMLElement} of.element
   * @param {import('./outbox.js').Outbox} of.outbox
   * @param {string} of.sessionId
   * @param {(entry: Entry) => HTMLElement | undefined} of.same a question like this that is still being answered
   * @param {(entry: Entry) => void} of.edit takes it back into the field
   * @param {() => Promise<boolean>} of.stop stops what runs; whether the server heard it
   * @param {(question: HTMLElement) => void} of.join shows a question that is being answered
   * @param {(text: string) => void} of.announce
   */
  constructor({ element, outbox, sessionId, same, edit, stop, join, announce }) {
    this.element = element;
    this.list = /** @type {HTMLElement} */ (element.querySelector('ol'));
    this.outbox = outbox;
    this.sessionId = sessionId;
    this.same = same;
    this.edit = edit;
    this.stop = stop;
    this.join = join;
    this.announce = announce;
    element.addEventListener('click', (event) => {
      const button = /** @type {HTMLElement} */ (event.target).closest('button');
      const line = /** @type {HTMLElement | null} */ (button)?.closest('li');
      if (button && line) this.#act(button.dataset.do ?? '', line.dataset.request ?? '');
    });
  }

  /** Shows what waits now, and leaves alone what is shown already: a focused button stays so. */
  show() {
    const entries = this.outbox.queue(this.sessionId);
    const ids = new Set(entries.map((entry) => entry.requestId));
    for (const [id, line] of this.#lines) {
      if (ids.has(id)) continue;
      const next = line.nextElementSibling ?? line.previousElementSibling;
      const focused = line.contains(document.activeElement);
      line.remove();
      this.#lines.delete(id);
      const heir = next?.querySelector('button:not([hidden])') ?? document.getElementById('text');
      if (focused) /** @type {HTMLElement | null} */ (heir)?.focus();
    }
    let place = this.list.firstElementChild;
    for (const entry of entries) {
      const line = this.#line(entry);
      if (line === place) place = place.nextElementSibling;
      else this.list.insertBefore(line, place);
      const join = /** @type {HTMLElement} */ (line.querySelector('[data-do=join]'));
      join.hidden = !this.same(entry);
    }
    this.element.hidden = entries.length === 0;
    const heading = t('js.queue', { n: entries.length });
    const title = /** @type {HTMLElement} */ (this.element.querySelector('h2'));
    if (title.textContent !== heading) title.textContent = heading;
  }

  /** @param {Entry} entry */
  #line(entry) {
    let line = this.#lines.get(entry.requestId);
    if (!line) {
      line = clone('queued');
      line.dataset.request = entry.requestId;
      const content = [entry.body.content, ...(entry.files ?? []).map((file) => `📎 ${file.name}`)].join(' ');
      const text = /** @type {HTMLElement} */ (line.querySelector('.said'));
      text.textContent = content.trim().slice(0, 300).replace(/\s+/g, ' ');
      text.title = content.slice(0, 1000);
      this.#lines.set(entry.requestId, line);
    }
    return line;
  }

  /** @param {string} what @param {string} requestId */
  async #act(what, requestId) {
    if (what === 'now') return this.#now(requestId);
    const entry = this.outbox.get(requestId);
    const same = entry && this.same(entry);
    if (what === 'edit') return this.#edit(requestId);
    if (!this.outbox.take(requestId)) return this.show(); // it is on its way, and the messages show it
    this.show();
    this.announce(t('js.queue.gone'));
    if (what === 'join' && same) this.join(same);
  }

  // The text is in the field before the entry ends: between the two a crash doubles
  // it and loses nothing.
  /** @param {string} requestId */
  #edit(requestId) {
    const entry = this.outbox.get(requestId);
    if (entry?.state !== 'queued') return this.show();
    this.edit(entry);
    this.outbox.take(requestId);
    this.show();
  }

  // It goes to the front first: should the answer end by itself, or this page, it is
  // still the next, and alone.
  /** @param {string} requestId */
  async #now(requestId) {
    this.outbox.prefer(requestId);
    this.show();
    const line = this.#lines.get(requestId);
    const button = /** @type {HTMLButtonElement | null | undefined} */ (line?.querySelector('[data-do=now]'));
    if (button) button.disabled = true;
    const stopped = await this.stop();
    if (button) button.disabled = false;
    if (stopped) this.outbox.release(requestId);
    this.show();
  }
}
