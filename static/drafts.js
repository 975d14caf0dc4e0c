// What is typed but not sent: one value per conversation, so that two tabs with
// two conversations never write into each other's. It is kept with each change
// and survives a reload and a crash. The oldest go first when there are many.

const prefix = 'semel.draft.';
const mostDrafts = 50;
const mostText = 1_000_000; // characters in all drafts; browsers keep some five million for everything
const abandoned = 10 * 60_000; // since a sign of life of the tab that a new conversation belongs to

/**
 * @typedef {import('./files.js').Attached} Attached
 *
 * @typedef {object} Draft
 * @property {1} v
 * @property {string} text
 * @property {Attached[]} [files] beside it
 * @property {number} at when it was typed, by this browser's clock
 * @property {string} [fresh] the account under which its conversation was opened; the server has nothing of it yet
 * @property {number} [held] when a tab last had it open; 0: it was left
 */

/** What of a text is sent. @param {string} text */
export function tidy(text) {
  return text.replace(/^\s*\n/, '').trimEnd();
}

/** Whether a storage event is about the draft with this key. @param {StorageEvent} event @param {string} key */
export function isAbout(event, key) {
  return event.key === prefix + key;
}

/** Characters that a draft takes up. @param {Draft} draft */
function lengthOf({ text, files = [] }) {
  return files.reduce((sum, file) => sum + (file.text?.length ?? 0), text.length);
}

/** @param {Attached[]} files */
const ids = (files) => files.map((file) => file.id ?? '');

export class Drafts {
  /** @param {Storage} storage @param {() => number} [now] */
  constructor(storage, now = Date.now) {
    this.storage = storage;
    this.now = now;
  }

  /** @param {string} key a conversation, or what else has a field of its own @returns {string} */
  get(key) {
    return this.#read(key)?.text ?? '';
  }

  /** @param {string} key @returns {Attached[]} */
  files(key) {
    return this.#read(key)?.files ?? [];
  }

  /**
   * Keeps a text and what is attached to it; nothing of both removes it. It throws when there is no room even without all
   * other drafts: then what was kept before still is.
   * @param {string} key @param {string} text @param {string} [fresh] @param {Attached[]} [files]
   */
  set(key, text, fresh, files = []) {
    if (!text && files.length === 0) return this.storage.removeItem(prefix + key);
    const at = this.now();
    /** @type {Draft} */
    const draft = fresh === undefined ? { v: 1, text, at } : { v: 1, text, at, fresh, held: at };
    if (files.length > 0) draft.files = files;
    const length = lengthOf(draft);
    if (length > 10_000 || this.storage.getItem(prefix + key) === null) this.#bound(key, length);
    this.#write(key, draft);
  }

  /**
   * Gives back a text that was not sent, above whatever was typed since.
   * @param {string} key @param {string} text @param {Attached[]} [files]
   */
  giveBack(key, text, files = []) {
    const { text: typed = '', fresh, files: beside = [] } = this.#read(key) ?? {};
    const all = [...beside, ...files.filter(({ id }) => !beside.some((file) => file.id === id))];
    const both = typed && text && typed !== text ? `${text}\n\n${typed}` : text || typed;
    if (both !== typed || all.length > beside.length) this.set(key, both, fresh, all);
  }

  /**
   * Drops a draft that is in the outbox: a crash came between the two writes of one
   * send. What was typed after that send stays, be it the same words.
   * @param {{sessionId: string, createdAt: number, body: {content?: string, attachments?: string[]}}} entry
   */
  sent(entry) {
    const draft = this.#read(entry.sessionId);
    const { content, attachments = [] } = entry.body;
    const same = (/** @type {Draft} */ d) => tidy(d.text) === content && ids(d.files ?? []).join() === attachments.join();
    if (draft && draft.at <= entry.createdAt && same(draft)) this.set(entry.sessionId, '');
  }

  /**
   * Says whether a tab has the draft of a new conversation open.
   * @param {string} key @param {boolean} open
   */
  hold(key, open) {
    const draft = this.#read(key);
    if (draft?.fresh !== undefined) this.#write(key, { ...draft, held: open ? this.now() : 0 });
  }

  /** Whether a key is of a new conversation with a draft. @param {string} key */
  isFresh(key) {
    return this.#read(key)?.fresh !== undefined;
  }

  /** Notes that the server has something of a conversation. @param {string} key */
  known(key) {
    const { fresh, held, ...draft } = this.#read(key) ?? {};
    if (fresh !== undefined) this.#write(key, /** @type {Draft} */ (draft));
  }

  /**
   * A new conversation that nobody has open any more: its tab was closed, or died.
   * @param {string} account @returns {string} "" when there is none
   */
  orphan(account) {
    const left = (/** @type {Draft} */ d) => d.fresh === account && this.now() - (d.held ?? 0) > abandoned;
    return this.#list().find(({ draft }) => left(draft))?.key ?? '';
  }

  /** @returns {{key: string, draft: Draft}[]} the newest first */
  #list() {
    const list = [];
    for (let i = 0; i < this.storage.length; i++) {
      const name = this.storage.key(i);
      if (!name?.startsWith(prefix)) continue;
      const key = name.slice(prefix.length);
      const draft = this.#read(key);
      if (draft) list.push({ key, draft });
    }
    return list.sort((a, b) => b.draft.at - a.draft.at);
  }

  /** Makes room for one more draft. @param {string} key @param {number} length */
  #bound(key, length) {
    const others = this.#list().filter((other) => other.key !== key);
    let n = 1;
    let total = length;
    for (const other of others) {
      n++;
      total += lengthOf(other.draft);
      if (n > mostDrafts || total > mostText) this.storage.removeItem(prefix + other.key);
    }
  }

  /** @param {string} key @param {Draft} draft */
  #write(key, draft) {
    const value = JSON.stringify(draft);
    for (;;) {
      try {
        return this.storage.setItem(prefix + key, value);
      } catch (error) {
        const oldest = this.#list().findLast((other) => other.key !== key);
        if (!oldest) throw error;
        this.storage.removeItem(prefix + oldest.key);
      }
    }
  }

  /** @param {string} key @returns {Draft | undefined} */
  #read(key) {
    try {
      const draft = JSON.parse(this.storage.getItem(prefix + key) ?? 'null');
      return draft?.v === 1 && typeof draft.text === 'string' ? draft : undefined;
    } catch {
      return undefined; // damaged, or not ours
    }
  }
}
