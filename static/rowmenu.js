// What can be done with a row: one menu for all of them, and the field in which a
// title is changed.

import { Composition } from './keys.js';
import { t } from './strings.js';

export class RowMenu {
  /** @type {string | undefined} */ #id;
  /** @type {HTMLElement | undefined} */ #button;

  /**
   * @param {HTMLElement} element
   * @param {(what: string, id: string) => void} act
   */
  constructor(element, act) {
    this.element = element;
    element.addEventListener('click', (event) => {
      const what = /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (event.target).closest('[data-do]'))?.dataset.do;
      if (!what || !this.#id) return;
      const id = this.#id;
      element.hidePopover();
      act(what, id);
    });
    element.addEventListener('click', (event) => {
      if (/** @type {HTMLElement} */ (event.target).closest('a')) element.hidePopover();
    });
    element.addEventListener('toggle', (event) => {
      const open = /** @type {ToggleEvent} */ (event).newState === 'open';
      this.#button?.setAttribute('aria-expanded', String(open));
    });
    element.addEventListener('focusout', (event) => {
      if (event.relatedTarget && !element.contains(/** @type {Node} */ (event.relatedTarget))) element.hidePopover();
    });
    element.addEventListener('keydown', (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const items = this.#items();
      const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      items[(at + step + items.length) % items.length].focus();
    });
  }

  #items() {
    return /** @type {HTMLElement[]} */ ([...this.element.querySelectorAll('[data-do]:not([hidden]), a')]);
  }

  /** @param {HTMLElement} button @param {import('./rows.js').Entry} entry */
  open(button, entry) {
    this.#id = entry.id;
    this.#button = button;
    for (const [what, shown] of Object.entries({
      unname: entry.named, pin: !entry.pinned && !entry.archived, unpin: entry.pinned, archive: !entry.archived, unarchive: entry.archived,
    })) /** @type {HTMLElement} */ (this.element.querySelector(`[data-do=${what}]`)).hidden = !shown;
    for (const a of /** @type {NodeListOf<HTMLAnchorElement>} */ (this.element.querySelectorAll('[data-export]')))
      a.href = `/api/conversations/${entry.id}/export?format=${a.dataset.export}`;
    this.element.showPopover();
    const from = button.getBoundingClientRect();
    const { width, height } = this.element.getBoundingClientRect();
    this.element.style.left = `${Math.max(8, Math.min(from.right - width, innerWidth - width - 8))}px`;
    this.element.style.top = `${from.bottom + height + 8 > innerHeight ? Math.max(8, from.top - height - 4) : from.bottom + 4}px`;
    this.#items()[0].focus();
  }
}

/**
 * Puts a field in the place of a row's title. Enter takes what is typed, and so does
 * leaving it; Escape leaves the title as it was.
 * @param {HTMLElement} row
 * @param {string} title
 * @param {(title: string, byKey: boolean) => void} done is called once, with "" for no change
 */
export function openRename(row, title, done) {
  const field = document.createElement('input');
  field.className = 'rename';
  field.value = title;
  field.maxLength = 80;
  field.setAttribute('aria-label', t('js.side.name'));
  field.enterKeyHint = 'done';
  field.autocomplete = 'off';
  const composition = new Composition(field);
  let over = false;
  const end = (/** @type {string} */ text, byKey = false) => {
    if (over) return;
    over = true;
    row.classList.remove('renaming');
    field.remove();
    done(text.trim().replace(/\s+/g, ' '), byKey);
  };
  field.addEventListener('keydown', (event) => {
    event.stopPropagation(); // Escape here stops no answer
    if (composition.sends(event, false)) {
      event.preventDefault();
      end(field.value, true);
    } else if (composition.stops(event)) {
      event.preventDefault(); // nor does it close the drawer
      end('', true);
    }
  });
  field.addEventListener('blur', () => end(field.value));
  row.classList.add('renaming');
  row.prepend(field);
  field.focus();
  field.select();
  field.scrollLeft = 0;
}
