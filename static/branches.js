// Branches: what is asked or answered anew stands beside the old, and nothing
// below is lost. The server has the tree; this puts a new version on screen before
// the server has heard of it, and remembers where the reader was in each branch.

/**
 * @typedef {import('./outbox.js').Body} Body
 * @typedef {import('./log.js').Log} Log
 */

/** @param {string} id a message, `conversation.number` @returns {number} */
export function seqOf(id) {
  return Number(id.slice(id.lastIndexOf('.') + 1));
}

/**
 * Shows a request that the page made: a question at the end; another version in
 * the place of the old one, which takes what followed it out of sight; more of an
 * answer below it.
 * @param {Log} log
 * @param {{body: Body, files?: import('./files.js').Attached[]}} entry
 * @param {(requestId: string) => boolean} ours what is on screen and no page has yet
 * @returns {HTMLElement} the message that carries the state of the request
 */
export function place(log, { body, files }, ours) {
  const { requestId, kind = 'message', content = '', parentId = '' } = body;
  const there = log.holder(requestId);
  if (there) return there;
  const parent = parentId && log.numbered(seqOf(parentId));
  if (parent) {
    const replaced = kind === 'regenerate' ? parent.dataset.role === 'assistant' : kind === 'edit' && parent.dataset.role === 'user';
    const count = replaced ? versionsOf(parent) + 1 : 0;
    log.cut(replaced ? parent : parent.nextElementSibling, ours);
    const article = kind === 'edit' ? log.question(requestId, content, files) : log.another(requestId, kind);
    if (count) showVersions(article, count, parent.dataset.seq ?? '');
    return article;
  }
  return kind === 'message' || kind === 'edit' ? log.question(requestId, content, files) : log.another(requestId, kind);
}

/** @param {HTMLElement} article @returns {number} how many versions it says there are */
function versionsOf(article) {
  return Number(article.querySelector('.versions > span')?.textContent?.split('/')[1] ?? 1);
}

/** @param {HTMLElement} article @param {number} count @param {string} before */
function showVersions(article, count, before) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById('versions'));
  const versions = /** @type {HTMLElement} */ (document.importNode(/** @type {Element} */ (template.content.firstElementChild), true));
  /** @type {HTMLElement} */ (versions.querySelector('span')).textContent = `${count}/${count}`;
  /** @type {HTMLButtonElement} */ (versions.querySelector('button')).value = before;
  if (article.dataset.role === 'user') article.querySelector('.tools')?.append(versions);
  else article.querySelector('.meta')?.prepend(versions);
}

/** Where the reader was in each branch that was left. */
export class Tails {
  /** @param {Storage} storage @param {string} session */
  constructor(storage, session) {
    this.storage = storage;
    this.key = `semel.tails.${session}`;
  }

  /** @returns {Record<string, number>} */
  #all() {
    try {
      return JSON.parse(this.storage.getItem(this.key) ?? '{}') ?? {};
    } catch {
      return {};
    }
  }

  /**
   * Remembers the end of the branch that is left, for each version on it.
   * @param {number[]} versions numbers of messages that have others beside them
   * @param {number} end
   */
  leave(versions, end) {
    const all = this.#all();
    for (const seq of versions) all[seq] = end;
    try {
      this.storage.setItem(this.key, JSON.stringify(Object.fromEntries(Object.entries(all).slice(-500))));
    } catch {
      // A full storage: the newest end of each branch is found without this.
    }
  }

  /** @param {number} seq @returns {number} where to go for a version: never above it */
  of(seq) {
    return Math.max(seq, this.#all()[seq] ?? 0);
  }
}
