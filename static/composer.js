// The text field: grows, keeps a draft per conversation, and empties at once when
// a message is sent, so that a second Enter or a second click finds nothing to
// send.

import { isAbout, tidy } from './drafts.js';
import { Composition, chooseEnter, enterBreaks, isTouch, onEnterChosen, sendingKey } from './keys.js';
import { remember } from './prefs.js';
import { t } from './strings.js';

// After a send, Stop takes the place of Send under the very pointer that may be
// in the middle of a double click. Until then Send stays, with nothing to send.
const doubleClick = 800;

// A text of this length is not kept with each key press but a moment after it, and
// its height is not measured: it is taller than the field can be.
const long = 20_000;
const moment = 300;

// A text of this length is not shown when it comes whole: no browser lays a megabyte
// out in less than a second.
const folds = 200_000;

const alive = 60_000; // how often a new conversation says that it is open

export class Composer {
  #running = false;
  #settling = false;
  #folded = false;
  #stored = ''; // what the storage holds of this field, as far as this tab knows
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #later;

  /**
   * @param {object} of
   * @param {HTMLFormElement} of.form
   * @param {import('./drafts.js').Drafts} of.drafts
   * @param {string} of.sessionId
   * @param {() => string | undefined} of.fresh the account, while the server has nothing of the conversation
   * @param {(text: string) => boolean} of.send returns whether the text is safe; if not it stays here
   * @param {() => void} of.stop
   * @param {(text: string) => void} of.announce
   */
  constructor({ form, drafts, sessionId, fresh, send, stop, announce }) {
    this.form = form;
    this.drafts = drafts;
    this.sessionId = sessionId;
    this.fresh = fresh;
    this.send = send;
    this.announce = announce;
    this.text = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem('content'));
    this.sendButton = /** @type {HTMLButtonElement} */ (form.querySelector('#send'));
    this.stopButton = /** @type {HTMLButtonElement} */ (form.querySelector('#stop'));
    this.limit = new Limit(this.text, /** @type {HTMLElement} */ (document.getElementById('limit')), announce);
    this.folded = /** @type {HTMLElement} */ (form.querySelector('#folded'));

    const composition = new Composition(this.text);
    this.text.addEventListener('keydown', (event) => {
      const sends = composition.sends(event, enterBreaks());
      if (sends || composition.echoes(event)) event.preventDefault();
      if (sends) form.requestSubmit(this.sendButton);
    });
    // Some drivers of keyboards deliver the character although its keydown was handled.
    this.text.addEventListener('keypress', (event) => {
      if (composition.sends(event, enterBreaks())) event.preventDefault();
    });
    document.addEventListener('keydown', (event) => {
      if (this.#running && !document.querySelector(':popover-open:not(#toast), dialog[open]') && composition.stops(event)) stop();
    });
    this.text.addEventListener('input', () => {
      this.#keep();
      this.#shape();
    });
    this.text.addEventListener('paste', (event) => this.#paste(event));
    this.folded.addEventListener('click', (event) => {
      const what = /** @type {HTMLElement} */ (event.target).dataset.do;
      if (what === 'open') this.#unfold();
      if (what === 'remove') this.suggest('');
    });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    this.stopButton.addEventListener('click', stop);
    this.#chooseKeys(/** @type {HTMLElement} */ (document.getElementById('keys')));
    this.#share();

    form.noValidate = true; // an empty field is nothing to send, not a mistake to point at

    // A text that came with the page was given back by the server: it comes first.
    const came = this.text.value;
    this.show();
    if (came) this.giveBack(came);
  }

  /** Sends what is typed, if anything is. */
  submit() {
    const text = tidy(this.text.value);
    if (text === '') return;
    if (this.limit.refuses(text)) return this.#focus();
    if (!this.send(text)) return;
    this.#put('');
    this.#write();
    if (this.stopButton.hidden) this.#settle();
    this.#shape();
    if (!isTouch()) this.#focus();
  }

  #settle() {
    this.#settling = true;
    setTimeout(() => {
      this.#settling = false;
      this.#shape();
    }, doubleClick);
  }

  /** Shows the draft as it is stored. */
  show() {
    this.#stored = this.drafts.get(this.sessionId);
    this.#put(this.#stored);
    this.#shape();
  }

  /** @param {string} text the whole of what the field is to hold */
  #put(text) {
    this.#folded = text.length > folds;
    this.text.hidden = this.#folded; // before it would be laid out
    this.text.value = text;
  }

  #unfold() {
    this.#folded = false;
    this.#shape();
    this.#focus();
  }

  #focus() {
    if (this.#folded) /** @type {HTMLElement} */ (this.folded.querySelector('button')).focus();
    else this.text.focus();
  }

  /** Puts a text into the field, for a person to send. @param {string} text */
  suggest(text) {
    this.#put(text);
    this.#write();
    this.#shape();
    this.#focus();
  }

  /**
   * Puts a text that was not sent above what is typed. Where the storage has no room
   * for it, it is in the field all the same.
   * @param {string} text
   * @param {boolean} [focus]
   */
  giveBack(text, focus) {
    const typed = this.text.value;
    if (text && tidy(typed) !== tidy(text)) this.#put(typed.trim() ? `${text}\n\n${typed}` : text);
    this.#write();
    this.#shape();
    if (focus) this.#focus();
  }

  /** @param {boolean} running whether there is something to stop */
  running(running) {
    if (this.#running === running) return;
    this.#running = running;
    this.#shape();
  }

  // Browsers take seconds to paste thousands of lines as if they were typed, and again
  // to show them. So they are put into the field at once, and folded when they are
  // very many. The price is that no key undoes it.
  /** @param {ClipboardEvent} event */
  #paste(event) {
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (text.length < long) return;
    event.preventDefault();
    const { selectionStart, selectionEnd, value } = this.text;
    const pasted = text.replace(/\r\n?/g, '\n');
    this.#put(value.slice(0, selectionStart) + pasted + value.slice(selectionEnd));
    this.#keep();
    this.#shape();
    if (this.#folded) this.sendButton.focus();
    else this.text.setSelectionRange(selectionStart + pasted.length, selectionStart + pasted.length);
  }

  #keep() {
    clearTimeout(this.#later);
    if (this.text.value.length < long) this.#write();
    else this.#later = setTimeout(() => this.#write(), moment);
  }

  #write() {
    clearTimeout(this.#later);
    this.#later = undefined;
    const { value } = this.text;
    if (value === this.#stored) return;
    try {
      this.drafts.set(this.sessionId, value, this.fresh());
      this.#stored = value;
    } catch {
      // A full storage loses the draft on reload; sending says so, typing does not.
    }
  }

  // The same conversation in another tab has the same draft: what is typed or sent
  // there shows here, so that neither tab writes over the other.
  #share() {
    const flush = () => this.#later && this.#write();
    this.text.addEventListener('blur', flush);
    document.addEventListener('visibilitychange', () => document.hidden && flush());
    addEventListener('pagehide', () => {
      flush();
      this.drafts.hold(this.sessionId, false);
    });
    const look = () => {
      if (this.text.value !== this.#stored) return; // what could not be kept is only here
      const { selectionStart, value } = this.text;
      const stored = this.drafts.get(this.sessionId);
      if (stored === this.#stored) return;
      this.show();
      const caret = selectionStart === value.length ? stored.length : selectionStart;
      this.text.setSelectionRange(caret, caret);
    };
    addEventListener('storage', (event) => isAbout(event, this.sessionId) && look());
    addEventListener('pageshow', (event) => {
      if (event.persisted) look(); // it heard of nothing meanwhile
      this.drafts.hold(this.sessionId, true);
    });
    setInterval(() => this.drafts.hold(this.sessionId, true), alive);
  }

  /** @param {HTMLElement} hint says which key sends, and lets a person choose the other */
  #chooseKeys(hint) {
    const rule = /** @type {HTMLElement} */ (hint.querySelector('span'));
    const other = /** @type {HTMLButtonElement} */ (hint.querySelector('button'));
    const show = () => {
      const breaks = enterBreaks();
      const key = sendingKey();
      rule.textContent = isTouch() ? t('js.keys.touch') : t(breaks ? 'js.keys.ctrl' : 'js.keys.enter', { key });
      other.textContent = breaks ? t('js.keys.useEnter') : t('js.keys.useCtrl', { key });
      other.hidden = isTouch();
      hint.hidden = false;
      this.text.enterKeyHint = breaks ? 'enter' : 'send';
    };
    other.addEventListener('click', () => {
      try {
        chooseEnter(!enterBreaks());
      } catch {
        return; // no room to remember it: the old rule holds, and the hint says so
      }
      remember({ sendKey: enterBreaks() ? 'mod_enter' : 'enter' }).catch(() => {}); // this browser knows it
      show();
      this.announce(rule.textContent ?? '');
    });
    onEnterChosen(show);
    matchMedia('(pointer: coarse)').addEventListener('change', show);
    show();
  }

  #shape() {
    const stop = this.#running && !this.#settling;
    this.stopButton.hidden = !stop;
    this.sendButton.hidden = stop && !/\S/.test(this.text.value);
    this.limit.show();
    const { style, value } = this.text;
    this.text.hidden = this.#folded;
    this.folded.hidden = !this.#folded;
    if (this.#folded) {
      /** @type {HTMLElement} */ (this.folded.querySelector('.said')).textContent = value.trimStart().slice(0, 200);
      /** @type {HTMLElement} */ (this.folded.querySelector('.size')).textContent = t('js.folded', { n: value.length });
    }
    const tall = value.length > long;
    this.text.classList.toggle('tall', tall);
    if (tall || CSS.supports('field-sizing', 'content')) {
      style.height = '';
      return;
    }
    style.height = 'auto';
    style.height = `${this.text.scrollHeight}px`;
  }
}

/** How much of what the server takes a text is: said only near the end of it. */
class Limit {
  #encoder = new TextEncoder();
  #said = ''; // 'near' or 'over', once it was announced: not with each letter

  /** @param {HTMLTextAreaElement} field @param {HTMLElement} counter @param {(text: string) => void} announce */
  constructor(field, counter, announce) {
    this.field = field;
    this.counter = counter;
    this.announce = announce;
  }

  get #most() {
    return Number(this.field.dataset.limit) || Infinity;
  }

  /** @param {string} text @returns {number} bytes as the server counts them */
  #bytes(text) {
    // No character of a string has more than three bytes: most texts need no counting.
    return text.length * 3 < this.#most * 0.9 ? 0 : this.#encoder.encode(text).length;
  }

  /** Whether a text is longer than the server takes; then the counter says so. @param {string} text */
  refuses(text) {
    if (this.#bytes(text) <= this.#most) return false;
    this.show();
    return true;
  }

  show() {
    const most = this.#most;
    const bytes = this.#bytes(tidy(this.field.value));
    const over = bytes > most;
    this.counter.hidden = bytes < most * 0.9;
    this.counter.classList.toggle('over', over);
    this.field.setAttribute('aria-invalid', String(over));
    const is = over ? 'over' : this.counter.hidden ? '' : 'near';
    if (is) this.counter.textContent = over ? t('js.limit.over', { n: bytes - most, most }) : t('js.limit.near', { n: bytes, most });
    if (is && is !== this.#said) this.announce(this.counter.textContent ?? '');
    this.#said = is;
  }
}
