// The pages of operations follow what happens: a stream says that something changed, and
// the same page is fetched anew, as often as twice a second. What is on screen stays the
// same node. Rows under a pointer, or with the focus in them, wait until it is gone. A
// page that is paused has no stream.

import { copyText } from './copy.js';
import { page } from './html.js';
import { sync } from './log.js';
import { explain, t } from './strings.js';

const pause = 500; // between two looks
const look = 1000; // at a check that runs, which no stream tells of
const chunk = 20; // deliveries that are sent again at a time

/** @param {ParentNode} from @param {string} selector @returns {any[]} */
const all = (from, selector) => [...from.querySelectorAll(selector)];

export class Ops {
  #paused = false;
  #pauses = 0; // so far: what was asked for before one and comes after it is old
  #again = false;
  #now = false; // the next look is shown at once
  /** @type {Promise<void> | undefined} */ #looking;
  /** @type {Map<string, Element>} what is newer than the screen, by region */ #waiting = new Map();
  /** @type {Set<Element>} regions that a pointer is over */ #pointed = new Set();
  /** @type {Set<string> | undefined} rows that were there when the page was paused, until it has said what is new */ #before;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;

  /**
   * @param {object} of
   * @param {HTMLElement} of.element
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   */
  constructor({ element, fetch }) {
    this.element = element;
    this.fetch = fetch;
    element.addEventListener('click', (event) => this.#click(event));
    element.addEventListener('submit', (event) => this.#submit(event));
    for (const region of all(element, '[data-fresh]')) {
      region.addEventListener('pointerover', (/** @type {PointerEvent} */ event) => event.pointerType !== 'touch' && this.#pointed.add(region)); // a finger rests nowhere
      region.addEventListener('pointerleave', () => {
        this.#pointed.delete(region);
        this.#show(region);
      });
      region.addEventListener('focusout', () => setTimeout(() => this.#show(region)));
    }
    for (const box of all(element, '.code')) this.#copyButton(box);
  }

  /** @param {{hold: () => void, release: () => void}} side has the stream of this tab */
  start(side) {
    this.side = side;
    this.#follow();
  }

  /** Something is not as it was. */
  changed() {
    if (this.#paused || document.hidden) return;
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = this.#look().finally(async () => {
      await new Promise((resume) => setTimeout(resume, pause));
      this.#looking = undefined;
      if (this.#again) {
        this.#again = false;
        this.changed();
      }
    });
  }

  async #look() {
    const now = this.#now;
    const pauses = this.#pauses;
    this.#now = false;
    let fresh;
    try {
      const response = await this.fetch(location.pathname + location.search, { headers: { Accept: 'text/html' }, cache: 'no-store', redirect: 'error' });
      if (!response.ok) return;
      fresh = page(await response.text());
    } catch {
      return; // the next change, or the next line of the stream, is another try
    }
    if (this.#paused || pauses !== this.#pauses) return;
    for (const region of all(this.element, '[data-fresh]')) {
      const newer = fresh.getElementById(region.id);
      if (!newer) continue;
      this.#waiting.set(region.id, newer);
      this.#show(region, now);
    }
    const waiting = this.#tellNew();
    if (this.#before) {
      const before = this.#before;
      this.#before = undefined;
      const here = [...keys(this.element)].filter((key) => !before.has(key));
      this.#say(t('js.ops.since', { n: here.length + waiting }));
    }
    this.#follow();
  }

  /**
   * Brings what waits for a region to the screen, unless a person is at it.
   * @param {HTMLElement} region @param {boolean} [now] whoever is at it
   */
  #show(region, now = false) {
    const fresh = this.#waiting.get(region.id);
    if (!fresh || (!now && this.#busy(region))) return;
    this.#waiting.delete(region.id);
    sync(region, fresh);
    for (const box of all(region, '.code')) this.#copyButton(box);
    this.#tellNew();
  }

  /** @param {HTMLElement} region whether a person points at its rows, or writes in it */
  #busy(region) {
    const writes = region.contains(document.activeElement) || region.querySelector('details[open] form') !== null;
    return writes || (region.dataset.rows !== undefined && this.#pointed.has(region));
  }

  /** Says how many rows wait. @returns {number} */
  #tellNew() {
    const button = this.element.querySelector('[data-action=fresh]');
    if (!(button instanceof HTMLElement)) return 0;
    let n = 0;
    for (const [id, fresh] of this.#waiting) {
      const known = keys(/** @type {Element} */ (document.getElementById(id)));
      for (const key of keys(fresh)) if (!known.has(key)) n++;
    }
    button.hidden = n === 0;
    button.textContent = t('js.ops.new', { n });
    return n;
  }

  /** @param {string} text */
  #say(text) {
    const status = this.element.querySelector('.live [role=status]');
    if (status) status.textContent = text;
  }

  /** Looks again at what no stream tells of. */
  #follow() {
    clearTimeout(this.#timer);
    if (this.element.querySelector('[data-running]')) this.#timer = setTimeout(() => this.changed(), look);
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('[data-action]'));
    switch (button?.dataset.action) {
      case 'pause': {
        this.#paused = !this.#paused;
        button.setAttribute('aria-pressed', String(this.#paused));
        this.#say('');
        if (this.#paused) {
          this.#pauses++;
          this.#before = keys(this.element);
          this.side?.hold();
        } else this.side?.release(); // its beginning is a reason to look
        break;
      }
      case 'fresh':
        for (const [id, fresh] of this.#waiting) {
          this.#waiting.delete(id);
          sync(/** @type {Element} */ (document.getElementById(id)), fresh);
        }
        this.#tellNew();
        break;
      case 'copy-json':
        copyText(button.parentElement?.querySelector('code')?.textContent ?? '').then((copied) => (button.textContent = t(copied ? 'js.copied' : 'js.notCopied')));
        break;
    }
  }

  /** @param {HTMLElement} box */
  #copyButton(box) {
    if (box.querySelector('.copy')) return;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.dataset.action = 'copy-json';
    button.textContent = t('js.copy');
    box.append(button);
  }

  // Many at once: a slice at a time, so that one sees how far it is. Without scripts the
  // server does them all and says then what came of each.
  /** @param {SubmitEvent} event */
  async #submit(event) {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (form.dataset.state === undefined) return;
    event.preventDefault();
    const { state } = form.dataset;
    const reason = new FormData(form).get('reason');
    const button = /** @type {HTMLButtonElement} */ (form.querySelector('button'));
    const report = /** @type {HTMLElement} */ (this.element.querySelector('#redriven'));
    const progress = /** @type {HTMLProgressElement} */ (report.querySelector('progress'));
    const list = /** @type {HTMLElement} */ (report.querySelector('ol'));
    button.disabled = true;
    list.replaceChildren();
    report.hidden = false;
    try {
      const ids = await this.#ids(state ?? '');
      progress.max = Math.max(ids.length, 1);
      let failed = 0;
      for (let from = 0; from < ids.length; from += chunk) {
        const response = await this.fetch('/api/ops/outbox/redrive', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
          body: JSON.stringify({ ids: ids.slice(from, from + chunk), reason }),
        });
        const answer = await response.json();
        if (!response.ok) throw answer;
        for (const { id, state: now, error } of answer.results) {
          const item = document.createElement('li');
          const code = document.createElement('code');
          code.textContent = id;
          item.append(code, ` ${error ? explain(error) : now}`);
          if (error) {
            item.className = 'bad';
            failed++;
          }
          list.append(item);
        }
        progress.value = from + answer.results.length;
        const status = report.querySelector('[role=status]');
        if (status) status.textContent = t('js.ops.redriven', { n: progress.value, of: ids.length, failed });
      }
    } catch (problem) {
      const status = report.querySelector('[role=status]');
      if (status) status.textContent = problem instanceof TypeError ? t('js.unreachable') : explain(problem);
    } finally {
      button.disabled = false;
      form.closest('details')?.removeAttribute('open');
      report.focus(); // the form goes
      this.#now = true; // whoever asked for it wants to see what came of it
      this.changed();
    }
  }

  /** All deliveries of a state. @param {string} state @returns {Promise<string[]>} */
  async #ids(state) {
    const ids = [];
    let next = '';
    do {
      const query = new URLSearchParams({ state, limit: '200' });
      if (next) query.set('before', next);
      const response = await this.fetch(`/api/ops/outbox?${query}`, { headers: { Accept: 'application/json' }, cache: 'no-store' });
      const answer = await response.json();
      if (!response.ok) throw answer;
      for (const { id } of answer.outbox) ids.push(id);
      next = answer.next;
    } while (next);
    return ids;
  }
}

/** The rows within an element, or within the region that it is. @param {Element} element @returns {Set<string>} */
function keys(element) {
  return new Set(all(element, '[data-rows] [data-key]').map((row) => row.dataset.key));
}
