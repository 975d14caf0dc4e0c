// What the buttons under messages do.

import { seqOf } from './branches.js';
import { copyText, textOf } from './copy.js';
import { openEditor } from './editor.js';
import { all } from './log.js';
import { showReceipt } from './receipt.js';
import { t } from './strings.js';

/**
 * What acts need of the page.
 * @typedef {object} Page
 * @property {string} session
 * @property {import('./log.js').Log} log
 * @property {import('./composer.js').Drafts} drafts
 * @property {import('./earlier.js').Earlier} earlier
 * @property {import('./branches.js').Tails} tails
 * @property {(url: string, init?: RequestInit) => Promise<Response>} fetch
 * @property {(what: Pick<import('./outbox.js').Body, 'kind' | 'parentId' | 'content'>, files?: import('./files.js').Attached[]) => string | undefined} ask
 * @property {(at: number) => Promise<Document | undefined>} page of a branch
 * @property {(fresh: Document, at: number) => void} show it; at: it is only read so far, 0: questions follow it
 * @property {() => void} followed what is shown is what questions follow now
 * @property {(text: string) => void} notice
 * @property {(text: string) => void} announce
 */

/** @param {MouseEvent} event whether it asks for another tab or window */
const elsewhere = (event) => event.ctrlKey || event.metaKey || event.shiftKey;

export class Acts {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
  }

  /** @param {string} action @param {HTMLElement} button @param {MouseEvent} event */
  act(action, button, event) {
    const link = /** @type {HTMLAnchorElement} */ (button).href;
    if (link !== undefined && (link === '' || elsewhere(event))) return; // a mark that leads nowhere yet, or the browser's to follow
    const article = /** @type {HTMLElement} */ (button.closest('article'));
    const id = `${this.page.session}.${article.dataset.seq}`;
    const { ask } = this.page;
    /** @type {Record<string, () => unknown>} */
    const does = {
      receipt: () => showReceipt(link, this.page.fetch),
      copy: async () => this.#copy(button, await textOf(article, this.page.session, this.page.fetch)),
      'copy-code': () => this.#copy(button, button.closest('.code')?.querySelector('code')?.textContent ?? ''),
      edit: () => openEditor(article, { id, drafts: this.page.drafts, fetch: this.page.fetch, announce: this.page.announce, send: (content, files) => ask({ kind: 'edit', parentId: id, content }, files) !== undefined }),
      regenerate: () => ask({ kind: 'regenerate', parentId: id }),
      continue: () => ask({ kind: 'continue', parentId: id }),
      branch: () => this.#branch(/** @type {HTMLButtonElement} */ (button), article),
    };
    if (!does[action]) return;
    event.preventDefault(); // without scripts it is a link, or posts a form
    does[action]();
  }

  /** @param {HTMLElement} button @param {string} text */
  async #copy(button, text) {
    const copied = await copyText(text);
    this.page.announce(t(copied ? 'js.copied' : 'js.notCopied'));
    if (!copied) return this.page.notice(t('js.notCopied'));
    button.classList.add('done');
    setTimeout(() => button.classList.remove('done'), 1500);
  }

  /**
   * Shows another version of a message, with what follows it there, and makes it
   * the branch that questions follow; while an answer runs it is only read.
   * @param {HTMLButtonElement} button
   * @param {HTMLElement} article
   */
  async #branch(button, article) {
    const { log, tails, page, show } = this.page;
    const seq = Number(button.value);
    const { end } = document.body.dataset;
    const versions = all(log.element, 'article').filter((a) => a.querySelector('.versions')).map((a) => Number(a.dataset.seq)).filter(Boolean);
    if (end) tails.leave(versions, seqOf(end));
    button.disabled = true;
    const fresh = (await page(tails.of(seq))) ?? (await page(seq));
    button.disabled = false;
    if (!fresh) return this.page.notice(t('js.unreachable'));
    const top = article.getBoundingClientRect().top;
    const head = fresh.body.dataset.end ?? '';
    const aside = fresh.body.dataset.aside !== undefined;
    show(fresh, aside ? seqOf(head) || seq : 0);
    this.#stand(log.numbered(seq) ?? log.holders().find((a) => a.dataset.kind), top, button.getAttribute('aria-label'));
    if (aside) await this.#makeHead(head);
  }

  /**
   * Puts the other version where the first one was on screen, and the focus where it
   * was in it.
   * @param {HTMLElement | undefined} article @param {number} top @param {string | null} label
   */
  #stand(article, top, label) {
    if (!article) return;
    this.page.earlier.keepInPlace(article, () => {});
    scrollBy({ top: article.getBoundingClientRect().top - top, behavior: 'instant' });
    const buttons = all(article, '.versions button').map((b) => /** @type {HTMLButtonElement} */ (b)).filter((b) => !b.disabled);
    (buttons.find((b) => b.getAttribute('aria-label') === label) ?? buttons[0])?.focus({ preventScroll: true });
  }

  /** Makes a message the one that questions follow. @param {string} head */
  async #makeHead(head) {
    try {
      const response = await this.page.fetch(`/api/conversations/${this.page.session}`, {
        method: 'PATCH',
        headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
        body: JSON.stringify({ head }),
      });
      if (response.ok && document.body.dataset.end === head) this.page.followed(); // else an answer runs: it is only read
    } catch {
      // it is only read, and the page says so
    }
  }
}
