// The rows of the list. Each belongs to one conversation and is changed in its
// place, so that focus and pointer stay where they are.

import { dayLabel, dayOf } from './days.js';
import { t } from './strings.js';

/**
 * @typedef {object} Entry
 * @property {string} id
 * @property {string} title "" for none
 * @property {number} updated milliseconds
 * @property {boolean} named a person gave the title
 * @property {boolean} pinned
 * @property {boolean} archived
 * @property {boolean} news it has ended since a person looked
 * @property {boolean} running
 * @property {string} [head]
 * @property {{seq: number, snippet: {text: string, hit?: boolean}[]}} [hit]
 */

const flags = /** @type {const} */ (['named', 'pinned', 'archived', 'news', 'running']);

export class Rows {
  frozen = false; // nothing moves meanwhile
  /** @type {Map<string, HTMLElement>} */ #rows = new Map();

  /** @param {HTMLElement} nav */
  constructor(nav) {
    this.nav = nav;
    this.groups = /** @type {HTMLElement} */ (nav.querySelector('.groups'));
    this.none = /** @type {HTMLElement} */ (nav.querySelector('.hint'));
    this.more = /** @type {HTMLElement} */ (nav.querySelector('.more'));
    this.template = /** @type {HTMLTemplateElement} */ (document.getElementById('conversation'));
    this.untitled = this.template.content.querySelector('.name')?.textContent?.trim() ?? '';
  }

  /** What the server put into the page. @returns {Entry[]} */
  read() {
    const list = [];
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (this.nav.querySelectorAll('li[data-id]'))) {
      const { id = '', updated, untitled } = row.dataset;
      const title = untitled === undefined ? (row.querySelector('.name')?.textContent?.trim() ?? '') : '';
      const set = Object.fromEntries(flags.map((flag) => [flag, row.dataset[flag] !== undefined]));
      list.push(/** @type {Entry} */ ({ id, title, updated: Number(updated), ...set }));
      this.#rows.set(id, row);
    }
    return list;
  }

  /** @param {string} id */
  row(id) {
    return this.#rows.get(id);
  }

  /** @param {Entry} entry */
  titleOf(entry) {
    return entry.title || this.untitled;
  }

  /**
   * @param {Entry[]} entries in their order
   * @param {{current: string, found: boolean, next: string, none: string, now: number}} as
   */
  show(entries, { current, found, next, none, now }) {
    if (this.frozen) return;
    const focused = document.activeElement;
    const rows = new Map();
    const sections = new Map([...this.groups.children].map((s) => [/** @type {HTMLElement} */ (s).dataset.group, s]));
    let section;
    let place = this.groups.firstElementChild;
    /** @type {string | undefined} */ let key;
    /** @type {Element | null} */ let at = null;
    for (const entry of entries) {
      if (rows.has(entry.id)) continue;
      const group = found ? 'found' : entry.pinned ? 'pinned' : dayOf(entry.updated, now);
      if (group !== key) {
        clear(at);
        key = group;
        section = sections.get(group) ?? this.#section(group);
        sections.delete(group);
        if (section === place) place = section.nextElementSibling;
        else this.groups.insertBefore(section, place);
        at = /** @type {Element} */ (section.querySelector('ol')).firstElementChild;
      }
      const row = this.#rows.get(entry.id) ?? /** @type {HTMLElement} */ (document.importNode(this.template.content.firstElementChild, true));
      rows.set(entry.id, row);
      this.#fill(row, entry, current);
      if (row === at) at = row.nextElementSibling;
      else /** @type {Element} */ (section).querySelector('ol')?.insertBefore(row, at);
    }
    clear(at);
    for (const empty of sections.values()) empty.remove();
    this.#rows = rows;
    this.none.hidden = entries.length > 0;
    this.none.textContent = none;
    this.more.hidden = !next;
    if (focused !== document.activeElement && focused instanceof HTMLElement && this.nav.contains(focused)) focused.focus({ preventScroll: true });
  }

  /** @param {string} group */
  #section(group) {
    const section = document.createElement('section');
    const heading = document.createElement('h2');
    section.dataset.group = group;
    heading.textContent = dayLabel(group, t, document.documentElement.lang);
    heading.hidden = heading.textContent === '';
    section.append(heading, document.createElement('ol'));
    return section;
  }

  /** @param {HTMLElement} row @param {Entry} entry @param {string} current */
  #fill(row, entry, current) {
    const link = /** @type {HTMLAnchorElement} */ (row.querySelector('a'));
    const { hit } = entry;
    const href = hit?.seq ? `/c/${entry.id}?at=${hit.seq}#m-${hit.seq}` : `/c/${entry.id}`;
    row.dataset.id = entry.id;
    row.dataset.updated = String(entry.updated);
    row.toggleAttribute('data-untitled', !entry.title);
    if (link.getAttribute('href') !== href) link.href = href;
    if (entry.id === current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
    this.mark(entry, row);
    const name = /** @type {HTMLElement} */ (row.querySelector('.name'));
    if (hit && !hit.seq) name.replaceChildren(...marked(hit.snippet));
    else if (name.textContent !== this.titleOf(entry) || name.firstElementChild) name.textContent = this.titleOf(entry);
    link.title = this.titleOf(entry);
    row.querySelector('.actions')?.setAttribute('aria-label', t('js.side.actions', { title: link.title }));
    let snippet = row.querySelector('.snippet');
    if (!hit?.seq) return snippet?.remove();
    if (!snippet) {
      snippet = document.createElement('span');
      snippet.className = 'snippet';
      name.after(snippet);
    }
    return snippet.replaceChildren(...marked(hit.snippet));
  }

  /** Shows the flags of an entry. @param {Entry} entry */
  mark(entry, row = this.#rows.get(entry.id)) {
    for (const flag of flags) row?.toggleAttribute(`data-${flag}`, entry[flag]);
  }

  /** @param {string} text heard by screen readers, not seen */
  say(text) {
    const live = document.getElementById('live');
    if (live) live.textContent = text;
  }
}

/** Removes a row and all that follow it. @param {Element | null} row */
function clear(row) {
  while (row) {
    const next = row.nextElementSibling;
    row.remove();
    row = next;
  }
}

/** A snippet as nodes: its text is text, whatever it looks like. @param {{text: string, hit?: boolean}[]} parts */
function marked(parts) {
  return parts.map(({ text, hit }) => {
    const node = document.createElement(hit ? 'mark' : 'span');
    node.textContent = text;
    return node;
  });
}
