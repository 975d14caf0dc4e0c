// The conversations at the side: listed by day, looked for, named, pinned, put away
// and deleted. The server's list is the truth; it is fetched anew whenever something
// may have changed, and rows are kept where they are as far as they are the same.

import { serverNow } from './clock.js';
import { Feed } from './feed.js';
import { Composition } from './keys.js';
import { RowMenu, openRename } from './rowmenu.js';
import { Rows } from './rows.js';
import { explain, t } from './strings.js';
import { Toast } from './toast.js';

/** @param {string} selector @returns {any} */
const $ = (selector) => document.querySelector(selector);

/**
 * @typedef {import('./rows.js').Entry} Entry
 *
 * @typedef {object} Chat what the page of a conversation does for its list
 * @property {() => string} session the conversation that is shown; "" when it is not stored yet
 * @property {() => boolean} busy whether an answer is still to come in it
 * @property {(entry: Entry | undefined) => void} standing how the list has it; nothing where it is not in the list and may have changed
 * @property {(yes: boolean) => void} leaving the page is about to go away with its conversation, or not after all
 * @property {(session: string) => void} deleted
 */

const page = 50; // conversations that are fetched at first, and with each "more"
const most = 200; // that one request may ask for
const pause = 1000; // between two looks at a list that keeps changing
const typing = 200; // after the last key before it is looked for
const away = 15_000; // between two looks while the page is hidden and something is answered

export class Sidebar {
  /** @type {Entry[]} */ entries = [];
  news = 0;
  #next = '';
  #archived = false;
  /** @type {{query: string, entries: Entry[], next: string} | undefined} */ #found;
  #title = '';
  #held = false; // an answer streams: no feed
  #seeing = ''; // the conversation that the server is being told of
  #heard = new Set(); // conversations that the feed named; "" is any
  /** @type {Promise<void> | undefined} */ #refreshing;
  #again = false;
  #paged = 0; // pages that "more" has brought
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #typed;

  /**
   * @param {object} of
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   * @param {Chat} of.chat
   * @param {string} [of.url] of a feed that tells more than what happens to conversations
   * @param {() => void} [of.more] it told more
   */
  constructor({ fetch, chat, url, more }) {
    this.fetch = fetch;
    this.chat = chat;
    this.rows = new Rows($('#conversations'));
    this.toast = new Toast($('#toast'));
    this.menu = new RowMenu($('#row-menu'), (what, id) => this.#act(what, id));
    this.feed = new Feed({ epoch: Number(document.body.dataset.epoch), fetch, changed: (sessions) => this.#changed(sessions), restored: () => location.reload(), url, more });
    this.#title = document.title.replace(/ · Semel$/, '');
    this.#archived = $('#conversations').dataset.archived !== undefined;
    this.entries = this.rows.read();
    this.#next = $('#conversations .more').dataset.next ?? '';
    this.news = this.entries.filter((e) => e.news).length;
    this.#listen();
    this.#show();
  }

  /** Begins to follow what happens, unless an answer streams already. */
  start() {
    if ($('#q').value) this.search();
    this.#resume();
    this.#leftBehind();
  }

  #listen() {
    const side = $('#side');
    side.addEventListener('click', (/** @type {MouseEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const button = target.closest('.actions');
      const row = /** @type {HTMLElement | null} */ (target.closest('li[data-id]'));
      if (button && row) {
        const entry = this.#entry(row.dataset.id ?? '');
        if (entry) this.menu.open(/** @type {HTMLElement} */ (button), entry);
      }
      if (target.closest('#conversations .more a') && plain(event)) {
        event.preventDefault();
        this.more();
      }
      if (target.closest('#archive') && plain(event)) {
        event.preventDefault();
        this.showArchive(!this.#archived);
      }
    });
    document.addEventListener('click', (event) => {
      if (/** @type {HTMLElement} */ (event.target).closest?.('#top [data-action=delete]')) this.delete(this.chat.session());
    });
    document.addEventListener('visibilitychange', () => this.#resume());
    addEventListener('pageshow', (event) => event.persisted && this.#resume());
    addEventListener('pagehide', () => this.feed.stop());
    $('#search').addEventListener('submit', (/** @type {Event} */ event) => {
      event.preventDefault();
      clearTimeout(this.#typed);
      this.search();
    });
    $('#q').addEventListener('input', (/** @type {InputEvent} */ event) => {
      clearTimeout(this.#typed);
      if (!event.isComposing) this.#typed = setTimeout(() => this.search(), typing);
    });
    const composition = new Composition($('#q'));
    $('#q').addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
      if (!composition.stops(event) || !$('#q').value) return;
      event.preventDefault(); // it closes no list
      event.stopPropagation(); // and stops no answer
      clearTimeout(this.#typed);
      $('#q').value = '';
      this.search();
    });
    $('#q').addEventListener('compositionend', () => {
      clearTimeout(this.#typed);
      this.#typed = setTimeout(() => this.search(), typing);
    });
  }

  // The feed

  /** An answer streams: this tab has its one stream. */
  hold() {
    this.#held = true;
    this.feed.stop();
  }

  /** It does not any more. */
  release() {
    this.#held = false;
    setTimeout(() => this.#resume()); // the next answer may begin at once
  }

  #resume() {
    clearTimeout(this.#timer);
    if (document.hidden) {
      this.feed.stop();
      this.#lookLater();
    } else if (this.#held) {
      this.refresh(); // nobody tells
    } else {
      this.feed.start(); // whose beginning is a reason to refresh
    }
  }

  /** @param {string[]} sessions */
  #changed(sessions) {
    for (const id of sessions) this.#heard.add(id);
    this.refresh();
  }

  // A hidden page has no stream, but its title says when an answer is there.
  #lookLater() {
    if (!document.hidden || !(this.chat.busy() || this.entries.some((e) => e.running))) return;
    this.#timer = setTimeout(async () => {
      await this.refresh();
      this.#lookLater();
    }, away);
  }

  // The list

  /** Fetches what is listed, as much as there is on screen; once more when it is asked for meanwhile. @returns {Promise<void>} */
  refresh() {
    if (this.#refreshing) {
      this.#again = true;
      return this.#refreshing;
    }
    this.#refreshing = this.#refresh().finally(async () => {
      if (this.#again) await new Promise((resume) => setTimeout(resume, pause));
      this.#refreshing = undefined;
      if (this.#again) {
        this.#again = false;
        await this.refresh();
      }
    });
    return this.#refreshing;
  }

  async #refresh() {
    const archived = this.#archived;
    const heard = this.#heard;
    const paged = this.#paged;
    this.#heard = new Set();
    /** @type {Entry[]} */ const list = [];
    let next = '';
    let news = 0;
    // Where all were there, all are wanted; but a page that is left open for days is not to
    // list whatever a program begins.
    const wanted = Math.max(page, this.entries.length) + (this.#next || this.entries.length >= most ? 0 : page);
    do {
      const answer = await this.#get({ before: next, limit: Math.min(most, wanted - list.length), archived });
      if (!answer || archived !== this.#archived) return; // it stays as it is
      list.push(...answer.conversations);
      ({ next, news } = answer);
    } while (next && list.length < wanted);
    if (paged !== this.#paged) { // it was asked for before there was more on screen, and would take that away
      for (const id of heard) this.#heard.add(id);
      this.#again = true;
      return;
    }
    this.entries = list;
    this.#next = next;
    this.news = news;
    this.#show();
    const session = this.chat.session();
    const current = this.entries.find((e) => e.id === session);
    if (current || heard.has(session) || heard.has('')) this.chat.standing(current);
  }

  /** @param {{before?: string, limit?: number, archived?: boolean, q?: string}} asked */
  async #get({ before = '', limit = page, archived = false, q = '' }) {
    const query = new URLSearchParams({ limit: String(limit) });
    if (before) query.set('before', before);
    if (archived) query.set('archived', '1');
    if (q) query.set('q', q);
    try {
      const response = await this.fetch(`/api/conversations?${query}`, { headers: { Accept: 'application/json' }, cache: 'no-store' });
      if (!response.ok) return undefined;
      const answer = await response.json();
      for (const entry of answer.conversations) entry.updated = Date.parse(entry.updatedAt);
      return answer;
    } catch {
      return undefined;
    }
  }

  /** The next page of what is shown. */
  async more() {
    const found = this.#found;
    const archived = this.#archived;
    const answer = await this.#get({ before: found ? found.next : this.#next, archived, q: found?.query });
    if (!answer) return this.toast.show(t('js.unreachable'));
    if (found !== this.#found || archived !== this.#archived) return undefined;
    const list = found ? found.entries : this.entries;
    const known = new Set(list.map((e) => e.id));
    list.push(...answer.conversations.filter((/** @type {Entry} */ e) => !known.has(e.id)));
    if (found) found.next = answer.next;
    else {
      this.#next = answer.next;
      this.#paged++;
    }
    return this.#show();
  }

  /** @param {boolean} archived */
  async showArchive(archived) {
    this.#archived = archived;
    this.entries = [];
    this.#next = '';
    await this.refresh();
    if (this.#found) await this.search();
    this.#show();
  }

  /** Looks for what stands in the field. */
  async search() {
    const query = $('#q').value.trim();
    if (!query) {
      this.#found = undefined;
      return this.#show();
    }
    const archived = this.#archived;
    const answer = await this.#get({ q: query, archived });
    if (query !== $('#q').value.trim() || archived !== this.#archived) return undefined; // it is another by now
    if (!answer) return this.toast.show(t('js.unreachable'));
    this.#found = { query, entries: answer.conversations, next: answer.next };
    this.rows.say(t('js.side.found', { n: answer.conversations.length }));
    return this.#show();
  }

  #show() {
    const list = this.#found ?? { query: '', entries: this.entries, next: this.#next };
    const none = this.#found ? 'js.side.nothing' : this.#archived ? 'js.side.archiveEmpty' : 'js.side.none';
    this.rows.show(list.entries, { current: this.chat.session(), found: this.#found !== undefined, next: list.next, none: t(none), now: serverNow() });
    $('#conversations .where').hidden = !this.#archived;
    $('#archive .to').hidden = this.#archived;
    $('#archive .from').hidden = !this.#archived;
    const current = this.#entry(this.chat.session());
    if (current?.title) this.titled(current.title);
    this.#look(current);
    this.#badge();
  }

  // The conversation on screen is being looked at: what has ended there is no news.
  /** @param {Entry | undefined} current */
  #look(current) {
    if (!current?.news || document.hidden) return;
    current.news = false;
    if (!current.archived) this.news--;
    this.rows.mark(current);
    if (this.#seeing === current.id) return;
    this.#seeing = current.id;
    this.#patch(current.id, { seen: true }, true).finally(() => (this.#seeing = ''));
  }

  #badge() {
    document.title = `${this.news > 0 ? `(${this.news}) ` : ''}${this.#title} · Semel`;
  }

  /** The conversation on screen has a title. @param {string} title */
  titled(title) {
    this.#title = title;
    const heading = $('#title');
    if (heading && heading.textContent !== title) heading.textContent = title;
    this.#badge();
  }

  /** The first question of the conversation on screen is stored. @param {string} title until the list has its own */
  accepted(title) {
    const id = this.chat.session();
    if (!this.entries.some((e) => e.id === id)) {
      this.entries.unshift({ id, title, updated: serverNow(), named: false, pinned: false, archived: false, news: false, running: true });
      this.#show();
    }
    this.titled(title);
    this.refresh();
  }

  /** @param {string} id @returns {Entry | undefined} */
  #entry(id) {
    return (this.#found?.entries ?? []).find((e) => e.id === id) ?? this.entries.find((e) => e.id === id);
  }

  // What is done to a conversation

  /** @param {string} what @param {string} id */
  #act(what, id) {
    const entry = this.#entry(id);
    if (!entry) return;
    if (what === 'rename') this.#rename(entry);
    if (what === 'unname') this.#change(entry, { named: false });
    if (what === 'pin') this.#change(entry, { pinned: true });
    if (what === 'unpin') this.#change(entry, { pinned: false });
    if (what === 'unarchive') this.#change(entry, { archived: false });
    if (what === 'archive') {
      this.#change(entry, { archived: true }, () =>
        this.toast.show(t('js.side.archived', { title: this.rows.titleOf(entry) }), () => this.#change(entry, { archived: false, pinned: entry.pinned })));
    }
    if (what === 'delete') this.delete(id);
  }

  /** @param {Entry} entry */
  #rename(entry) {
    const row = this.rows.row(entry.id);
    if (!row) return;
    this.rows.frozen = true; // rows that move would take the field away
    openRename(row, entry.title, (title, byKey) => {
      this.rows.frozen = false;
      if (byKey) row.querySelector('a')?.focus({ preventScroll: true });
      if (title && title !== entry.title) this.#change(entry, { title });
      else this.#show();
    });
  }

  /** @param {Entry} entry @param {Record<string, unknown>} patch @param {() => void} [done] */
  async #change(entry, patch, done) {
    const now = await this.#patch(entry.id, patch);
    if (!now) return;
    entry.title = now.title;
    entry.named = now.named;
    if (this.#found && patch.archived !== undefined) this.#found.entries = this.#found.entries.filter((e) => e.id !== entry.id);
    if (patch.pinned !== undefined) entry.pinned = Boolean(patch.pinned);
    done?.();
    await this.refresh();
  }

  /** @param {string} id @param {Record<string, unknown>} patch @param {boolean} [quiet] @returns {Promise<any>} as #send */
  #patch(id, patch, quiet) {
    return this.#send(`/api/conversations/${id}`, { method: 'PATCH', body: JSON.stringify(patch) }, quiet);
  }

  /** @param {string} url @param {RequestInit} init @param {boolean} [quiet] @returns {Promise<any>} nothing when it failed; that is shown, unless quiet */
  async #send(url, init, quiet) {
    try {
      const response = await this.fetch(url, { ...init, headers: { 'Content-Type': 'application/json', Accept: 'application/json' } });
      const answer = await response.json();
      if (response.ok) return answer;
      if (!quiet) this.toast.show(explain(answer));
    } catch {
      if (!quiet) this.toast.show(t('js.unreachable'));
    }
    return undefined;
  }

  /** Deletes a conversation; that can be undone for ten minutes. @param {string} id */
  async delete(id) {
    const entry = this.#entry(id);
    const title = entry ? this.rows.titleOf(entry) : ($('#title')?.textContent ?? '');
    const back = id === this.chat.session();
    if (back) this.chat.leaving(true); // what comes of the deletion is nothing to show any more
    const answer = await this.#send(`/api/conversations/${id}`, { method: 'DELETE' });
    if (!answer) return this.chat.leaving(false);
    this.chat.deleted(id);
    const undo = { id, title, until: Date.parse(answer.undoUntil), back };
    if (back) {
      sessionStorage.setItem('semel.undo', JSON.stringify(undo));
      return location.assign('/');
    }
    this.entries = this.entries.filter((e) => e.id !== id);
    if (this.#found) this.#found.entries = this.#found.entries.filter((e) => e.id !== id);
    this.#show();
    this.#offerUndo(undo);
    return this.refresh();
  }

  // A page that went away with its conversation left this for the next.
  #leftBehind() {
    const left = sessionStorage.getItem('semel.undo');
    if (!left) return;
    sessionStorage.removeItem('semel.undo');
    this.#offerUndo(JSON.parse(left));
  }

  /** @param {{id: string, title: string, until: number, back: boolean}} undo */
  #offerUndo({ id, title, until, back }) {
    if (until <= serverNow()) return;
    this.toast.show(t('js.deleted', { title }), async () => {
      if (!(await this.#send(`/api/conversations/${id}/restore`, { method: 'POST', body: '{}' }))) return;
      if (back) location.assign(`/c/${id}`);
      else this.refresh();
    }, until, serverNow());
  }
}

/** Whether a click asks for no other tab or window. @param {MouseEvent} event */
function plain(event) {
  return !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
}
