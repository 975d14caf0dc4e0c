// The messages on screen. The server's page is the truth; what is made here looks
// the same and is replaced by it.

import { carried } from './files.js';
import { asServed } from './html.js';
import { explain } from './strings.js';

/** @type {Record<string, string>} what a state looks like */
const marks = { pending: 'received', generating: 'answering', acknowledged: 'answered', committed: 'answered' };

/** @param {string} id @returns {HTMLElement} */
export function clone(id) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById(id));
  return /** @type {HTMLElement} */ (document.importNode(/** @type {Element} */ (template.content.firstElementChild), true));
}

/** @param {ParentNode} from @param {string} selector @returns {HTMLElement[]} */
export function all(from, selector) {
  return [...from.querySelectorAll(selector)].map((e) => /** @type {HTMLElement} */ (e));
}

export class Log {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
  }

  /**
   * The messages that carry the state of a request, in order: questions, and other
   * answers or more of one while they are not final.
   */
  holders() {
    return all(this.element, 'article[data-state]');
  }

  /** @param {string} requestId @returns {HTMLElement | null} */
  holder(requestId) {
    return this.element.querySelector(`article[data-state][data-request="${CSS.escape(requestId)}"]`);
  }

  /** @param {'user' | 'assistant'} role @param {string} requestId @returns {HTMLElement | null} */
  find(role, requestId) {
    return this.element.querySelector(`article[data-role=${role}][data-request="${CSS.escape(requestId)}"]`);
  }

  /** @param {string | number} seq @returns {HTMLElement | null} the message with this number */
  numbered(seq) {
    return this.element.querySelector(`article[data-seq="${CSS.escape(String(seq))}"]`);
  }

  /**
   * A new question at the end.
   * @param {string} requestId @param {string} content @param {import('./files.js').Attached[]} [files]
   */
  question(requestId, content, files = []) {
    const article = clone('question');
    article.dataset.request = requestId;
    /** @type {HTMLElement} */ (article.querySelector('.body')).textContent = content;
    if (files.length > 0) article.querySelector('.body')?.before(carried(files));
    return this.#append(article);
  }

  /**
   * A new answer at the end that is a request of its own.
   * @param {string} requestId @param {string} kind
   */
  another(requestId, kind) {
    const article = clone('answer');
    article.dataset.request = requestId;
    article.dataset.kind = kind;
    return this.#append(article);
  }

  /** @param {HTMLElement} article */
  #append(article) {
    this.element.append(article);
    this.changed();
    return article;
  }

  /** @param {string} requestId */
  remove(requestId) {
    this.holder(requestId)?.remove();
    this.changed();
  }

  /** The answer of a request, under its question. @param {string} requestId @returns {HTMLElement} */
  answer(requestId) {
    let article = this.find('assistant', requestId);
    if (!article) {
      article = clone('answer');
      article.dataset.request = requestId;
      settled(article);
      const question = this.find('user', requestId);
      if (question) question.after(article);
      else this.element.append(article);
      this.changed();
    }
    return article;
  }

  /**
   * Puts a delivery mark under a message.
   * @param {HTMLElement} holder
   * @param {string} mark
   * @param {string} [why]
   */
  mark(holder, mark, why = '') {
    const old = holder.querySelector('.mark');
    if (/** @type {HTMLElement} */ (old)?.dataset.mark !== mark) {
      const list = /** @type {HTMLTemplateElement} */ (document.getElementById('marks'));
      const found = list.content.querySelector(`[data-mark=${mark}]`);
      if (found) {
        const fresh = /** @type {HTMLAnchorElement} */ (document.importNode(found, true));
        // What the server has not got has no receipt.
        if (!['sending', 'kept', 'asked'].includes(mark)) fresh.href = `/c/${document.body.dataset.session}/r/${encodeURIComponent(holder.dataset.request ?? '')}`;
        if (old) sync(old, fresh);
      }
    }
    const asked = holder.querySelector('.asked');
    if (mark !== 'asked') asked?.remove();
    else if (!asked) holder.querySelector('.delivery')?.after(clone('asked'));
    this.why(holder, why);
    this.#again(holder, mark === 'failed' || mark === 'unknown');
  }

  /** Says beside the mark why it is so. @param {HTMLElement} holder @param {string} why */
  why(holder, why) {
    const reason = holder.querySelector('.why');
    if (reason && reason.textContent?.trim() !== why) reason.textContent = why;
  }

  /** Shows the stored state of a request. @param {HTMLElement} holder @param {string} state */
  state(holder, state) {
    if (holder.dataset.role === 'assistant' && marks[state] === 'answered') return settled(holder);
    holder.dataset.state = state;
    if (marks[state]) this.mark(holder, marks[state]);
  }

  /** Shows that a request failed. @param {HTMLElement} holder @param {any} problem */
  failed(holder, problem) {
    holder.dataset.state = 'failed';
    this.mark(holder, problem.outcome === 'unknown' ? 'unknown' : 'failed', explain(problem));
    if (problem.retry === 'never') this.#again(holder, false);
    const answer = this.find('assistant', holder.dataset.request ?? '');
    if (!answer) return;
    answer.classList.remove('streaming');
    if (answer.querySelector('.body')?.childElementCount) this.partial(answer, problem.code === 'stopped' ? 'stopped' : 'interrupted');
    else if (answer !== holder) answer.remove();
  }

  /** Labels an answer that is not whole. @param {HTMLElement} answer @param {'stopped' | 'interrupted' | ''} kind */
  partial(answer, kind) {
    answer.querySelector('[data-partial]')?.remove();
    if (kind) answer.querySelector('.body')?.after(clone(`partial-${kind}`));
  }

  /** Removes an article and all below it. @param {Element | null} from @param {(requestId: string) => boolean} except */
  cut(from, except) {
    for (let next; from; from = next) {
      next = from.nextElementSibling;
      if (!except(/** @type {HTMLElement} */ (from).dataset.request ?? '')) from.remove();
    }
  }

  /**
   * Takes over the messages of a page the server just rendered. A page has the last
   * turns only; what is on screen above them stays.
   * @param {Element} fresh its #log
   * @param {(requestId: string) => boolean} ours whether what is on screen is newer than any page
   * @param {boolean} partial whether there are turns above those of the page
   */
  reconcile(fresh, ours, partial) {
    const articles = all(fresh, 'article');
    const seen = new Set();
    const [first] = articles;
    const top = first && partial ? this.find(/** @type {any} */ (first.dataset.role), first.dataset.request ?? '') : null;
    for (let above = top?.previousElementSibling; above; above = above.previousElementSibling) seen.add(above);
    let next = top ?? this.element.firstElementChild;
    for (const article of articles) {
      const { role, request = '' } = article.dataset;
      let here = this.find(/** @type {any} */ (role), request);
      if (!here) here = document.adoptNode(article);
      else if (!ours(request)) sync(here, article);
      seen.add(here);
      if (here === next) next = here.nextElementSibling;
      else this.element.insertBefore(here, next);
    }
    for (const article of all(this.element, 'article')) {
      if (!seen.has(article) && !ours(article.dataset.request ?? '')) article.remove();
    }
    this.changed();
  }

  changed() {
    document.body.classList.toggle('empty', !this.element.querySelector('article'));
  }

  /** @param {HTMLElement} holder @param {boolean} possible */
  #again(holder, possible) {
    const again = /** @type {HTMLElement | null} */ (holder.querySelector('.again'));
    if (again) again.hidden = !possible;
  }
}

/** An answer that is final is no request of its own any more. @param {HTMLElement} article */
function settled(article) {
  for (const name of ['kind', 'state', 'attempt']) delete article.dataset[name];
  article.querySelector('.delivery')?.remove();
}

/**
 * Makes an element what the server says it is. What is there already stays the same
 * node, and moves only when its order changed: a selection, a focused button, one that
 * is just being pressed.
 * @param {Element} here @param {Element} fresh
 */
export function sync(here, fresh) {
  if (here.classList.contains('editing')) return;
  if (here.className === 'body') {
    if (asServed(here) !== fresh.innerHTML.trim()) here.replaceWith(document.adoptNode(fresh));
    return;
  }
  for (const { name } of [...here.attributes]) if (name !== 'open' && !fresh.hasAttribute(name)) here.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (here.getAttribute(name) !== value) here.setAttribute(name, value);
  const left = new Set(here.childNodes);
  const pairs = [...fresh.childNodes].map((child) => {
    const same = [...left].find((node) => alike(node, child));
    if (same) left.delete(same);
    return { child, same };
  });
  for (const node of left) node.remove();
  let next = here.firstChild;
  for (const { child, same } of pairs) {
    if (!same) {
      here.insertBefore(document.adoptNode(child), next);
      continue;
    }
    if (same === next) next = same.nextSibling;
    else here.insertBefore(same, next);
    if (same instanceof Element) sync(same, /** @type {Element} */ (child));
    else if (same.nodeValue !== child.nodeValue) same.nodeValue = child.nodeValue;
  }
}

/** @param {Node} a on screen @param {Node} b from the server: whether they are the same thing, whatever it says */
function alike(a, b) {
  if (!(a instanceof HTMLElement && b instanceof HTMLElement)) return a.nodeName === b.nodeName;
  return a.localName === b.localName && a.classList[0] === b.classList[0] && a.dataset.action === b.dataset.action && a.dataset.decision === b.dataset.decision && a.dataset.model === b.dataset.model && a.dataset.key === b.dataset.key;
}
