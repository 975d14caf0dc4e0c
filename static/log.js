// The messages on screen. The server's page is the truth; what is made here looks
// the same and is replaced by it.

import { fragment } from './html.js';
import { explain } from './strings.js';

/** @type {Record<string, string>} what a state looks like under a question */
const marks = { pending: 'received', generating: 'answering', acknowledged: 'answered', committed: 'answered' };

/** @param {string} id @returns {HTMLElement} */
function clone(id) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById(id));
  return /** @type {HTMLElement} */ (document.importNode(/** @type {Element} */ (template.content.firstElementChild), true));
}

export class Log {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
  }

  /** @returns {HTMLElement[]} the questions, in order */
  questions() {
    return [...this.element.querySelectorAll('article[data-role=user]')].map((a) => /** @type {HTMLElement} */ (a));
  }

  /** @param {'user' | 'assistant'} role @param {string} requestId @returns {HTMLElement | null} */
  find(role, requestId) {
    return this.element.querySelector(`article[data-role=${role}][data-request="${CSS.escape(requestId)}"]`);
  }

  /**
   * The question of a request; a new one is put at the end.
   * @param {string} requestId @param {string} content
   */
  question(requestId, content) {
    let article = this.find('user', requestId);
    if (!article) {
      article = clone('question');
      article.dataset.request = requestId;
      /** @type {HTMLElement} */ (article.querySelector('.body')).textContent = content;
      this.element.append(article);
      this.changed();
    }
    return article;
  }

  /** @param {string} requestId */
  remove(requestId) {
    this.find('user', requestId)?.remove();
    this.changed();
  }

  /** The answer of a request, under its question. @param {string} requestId @returns {HTMLElement} */
  answer(requestId) {
    let article = this.find('assistant', requestId);
    if (!article) {
      article = clone('answer');
      article.dataset.request = requestId;
      const question = this.find('user', requestId);
      if (question) question.after(article);
      else this.element.append(article);
      this.changed();
    }
    return article;
  }

  /**
   * Puts a delivery mark under a question.
   * @param {HTMLElement} question
   * @param {string} mark
   * @param {string} [why]
   */
  mark(question, mark, why = '') {
    const old = question.querySelector('.mark');
    if (/** @type {HTMLElement} */ (old)?.dataset.mark !== mark) {
      const all = /** @type {HTMLTemplateElement} */ (document.getElementById('marks'));
      const fresh = all.content.querySelector(`[data-mark=${mark}]`);
      if (fresh) old?.replaceWith(document.importNode(fresh, true));
    }
    /** @type {HTMLElement} */ (question.querySelector('.why')).textContent = why;
    this.#retry(question).hidden = mark !== 'failed' && mark !== 'unknown';
  }

  /** Shows the stored state of a request. @param {HTMLElement} question @param {string} state */
  state(question, state) {
    question.dataset.state = state;
    if (marks[state]) this.mark(question, marks[state]);
  }

  /** Shows that a request failed. @param {HTMLElement} question @param {any} problem */
  failed(question, problem) {
    question.dataset.state = 'failed';
    this.mark(question, problem.outcome === 'unknown' ? 'unknown' : 'failed', explain(problem));
    if (problem.retry === 'never') this.#retry(question).hidden = true;
    const answer = this.find('assistant', question.dataset.request ?? '');
    if (!answer) return;
    answer.classList.remove('streaming');
    if (answer.querySelector('.body')?.childElementCount) this.partial(answer, problem.code === 'stopped' ? 'stopped' : 'interrupted');
    else answer.remove();
  }

  /** Labels an answer that is not whole. @param {HTMLElement} answer @param {'stopped' | 'interrupted' | ''} kind */
  partial(answer, kind) {
    answer.querySelector('[data-partial]')?.remove();
    if (kind) answer.querySelector('.body')?.after(clone(`partial-${kind}`));
  }

  /**
   * Takes over the messages of a page the server just rendered.
   * @param {Element} fresh its #log
   * @param {(requestId: string) => boolean} ours whether what is on screen is newer than any page
   */
  reconcile(fresh, ours) {
    let next = this.element.firstElementChild;
    const seen = new Set();
    for (const article of /** @type {NodeListOf<HTMLElement>} */ (fresh.querySelectorAll('article'))) {
      const { role, request = '' } = article.dataset;
      let here = this.find(/** @type {any} */ (role), request);
      if (!here || (!ours(request) && here.outerHTML !== article.outerHTML)) {
        const node = document.adoptNode(article);
        if (here && here === next) next = here.nextElementSibling;
        here?.remove();
        here = node;
      }
      seen.add(here);
      if (here === next) next = here.nextElementSibling;
      else this.element.insertBefore(here, next);
    }
    for (const article of [...this.element.querySelectorAll('article')]) {
      if (!seen.has(article) && !ours(/** @type {HTMLElement} */ (article).dataset.request ?? '')) article.remove();
    }
    this.changed();
  }

  changed() {
    document.body.classList.toggle('empty', !this.element.querySelector('article'));
  }

  /** @param {HTMLElement} question @returns {HTMLButtonElement} */
  #retry(question) {
    return /** @type {HTMLButtonElement} */ (question.querySelector('[data-action=retry]'));
  }
}

/**
 * An answer while it streams. Block n owns some nodes; setting it again touches
 * only those, so a selection in earlier text stays.
 */
export class LiveAnswer {
  /** @type {{html: string, nodes: ChildNode[]}[]} */ #blocks = [];
  #told = 0; // blocks that this connection told of
  #thinking = false; // whether it told of reasoning

  /** @param {HTMLElement} article */
  constructor(article) {
    this.article = article;
    this.body = /** @type {HTMLElement} */ (article.querySelector('.body'));
    this.reasoning = /** @type {HTMLElement} */ (article.querySelector('.reasoning'));
    article.classList.add('streaming');
  }

  /** A new connection tells everything again. */
  joined() {
    this.#told = 0;
    this.#thinking = false;
  }

  /**
   * Drops what the last connection did not tell of. A server that was killed may
   * have stored less than it had sent, and what is stored is what counts.
   */
  cut() {
    for (const block of this.#blocks.splice(this.#told)) for (const node of block.nodes) node.remove();
  }

  /** Discards everything: it belongs to an attempt that is over. */
  reset() {
    this.#blocks = [];
    this.body.replaceChildren();
    this.#thoughts('');
  }

  /** @param {number} n @param {string} html */
  block(n, html) {
    if (this.#blocks.length === 0) this.body.replaceChildren(); // what the page came with
    this.#told = n + 1;
    const old = this.#blocks[n];
    if (old?.html === html) return;
    const content = fragment(html);
    const nodes = [...content.childNodes];
    const after = old?.nodes.at(-1)?.nextSibling ?? null;
    for (const node of old?.nodes ?? []) node.remove();
    this.body.insertBefore(content, after);
    this.#blocks[n] = { html, nodes };
  }

  /** @param {string} text */
  think(text) {
    const before = this.#thinking ? (this.reasoning.querySelector('.thoughts')?.textContent ?? '') : '';
    this.#thinking = true;
    this.#thoughts(before + text);
  }

  /** @param {any} record the final record */
  finish(record) {
    // Leave the nodes alone where the blocks already say the same.
    if (this.#blocks.map((b) => b.html).join('') !== record.html) this.body.replaceChildren(fragment(record.html));
    this.#blocks = [];
    this.article.classList.remove('streaming');
    this.article.dataset.seq = record.message?.seq ?? '';
    /** @type {HTMLElement} */ (this.article.querySelector('.meta')).textContent = record.model;
  }

  /** @param {string} text */
  #thoughts(text) {
    this.reasoning.hidden = text === '';
    /** @type {HTMLElement} */ (this.reasoning.querySelector('.thoughts')).textContent = text;
  }
}
