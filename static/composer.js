// The text field: grows, keeps a draft per conversation, and empties at once when
// a message is sent, so that a second Enter or a second click finds nothing to
// send.

import { Attachments } from './attachments.js';
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

// A pasted text of this length becomes a file.
const file = 5000;

/** @typedef {import('./files.js').Attached} Attached */

const alive = 60_000; // how often a new conversation says that it is open

export class Composer {
  #running = false;
  #settling = false;
  #rule = ''; // what a question may carry
  #waiting = false; // it is sent once its files are there
  #stored = ''; // what the storage holds of this field, as far as this tab knows; see #now
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #later;

  /**
   * @param {object} of
   * @param {HTMLFormElement} of.form
   * @param {import('./drafts.js').Drafts} of.drafts
   * @param {string} of.sessionId
   * @param {() => string | undefined} of.fresh the account, while the server has nothing of the conversation
   * @param {(text: string, files: Attached[]) => boolean} of.send returns whether it is safe; if not it stays here
   * @param {() => void} of.stop
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   * @param {(text: string) => void} of.say what is wrong
   * @param {(text: string) => void} of.announce
   */
  constructor({ form, drafts, sessionId, fresh, send, stop, fetch, say, announce }) {
    this.form = form;
    this.drafts = drafts;
    this.sessionId = sessionId;
    this.fresh = fresh;
    this.send = send;
    this.say = say;
    this.announce = announce;
    this.text = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem('content'));
    this.sendButton = /** @type {HTMLButtonElement} */ (form.querySelector('#send'));
    this.stopButton = /** @type {HTMLButtonElement} */ (form.querySelector('#stop'));
    this.limit = new Limit(this.text, /** @type {HTMLElement} */ (document.getElementById('limit')), announce);
    this.rule = /** @type {HTMLElement} */ (document.getElementById('files'));
    this.#rule = this.rule.textContent ?? '';
    const { files, fileBytes, filesBytes } = form.dataset;
    this.files = new Attachments({
      list: /** @type {HTMLElement} */ (form.querySelector('#attached')),
      limits: { count: Number(files), bytes: Number(fileBytes), total: Number(filesBytes) },
      fetch,
      changed: () => this.#filesChanged(),
      say,
      announce,
      toText: (text) => this.#insert(text),
      longest: () => this.limit.most,
    });

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
    form.addEventListener('keydown', (event) => {
      if (!this.#waiting || !composition.stops(event)) return;
      event.stopPropagation(); // it takes the sending back and stops no answer
      this.#waiting = false;
      this.#shape();
    });
    this.text.addEventListener('input', () => {
      this.#keep();
      this.#shape();
    });
    this.text.addEventListener('paste', (event) => this.#paste(event));
    const pick = /** @type {HTMLInputElement} */ (form.querySelector('#pick'));
    form.querySelector('#attach')?.addEventListener('click', () => pick.click());
    pick.addEventListener('change', () => {
      this.files.add(pick.files ?? []);
      pick.value = ''; // the same file may be chosen again
      this.text.focus();
    });
    this.#drops();
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
    if (text === '' && this.files.empty) return;
    if (this.limit.refuses(text)) return this.text.focus();
    if (this.files.failed) return this.say(t('js.files.mend'));
    this.#waiting = this.files.uploading > 0;
    if (this.#waiting) {
      this.announce(t('js.files.waits', { n: this.files.uploading }));
      return this.#shape();
    }
    if (!this.send(text, this.files.ready)) return;
    this.text.value = '';
    this.files.clear();
    this.#write();
    if (this.stopButton.hidden) this.#settle();
    this.#shape();
    if (!isTouch()) this.text.focus();
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
    this.text.value = this.drafts.get(this.sessionId);
    const files = this.drafts.files(this.sessionId);
    this.#stored = JSON.stringify([this.text.value, files]);
    if (files.length > 0 || !this.files.empty) this.files.show(files);
    this.#shape();
  }

  /** Puts a text into the field, for a person to send. @param {string} text */
  suggest(text) {
    this.text.value = text;
    this.#write();
    this.#shape();
    this.text.focus();
  }

  /**
   * Puts a text that was not sent above what is typed. Where the storage has no room
   * for it, it is in the field all the same.
   * @param {string} text
   * @param {Attached[]} [files]
   * @param {boolean} [focus]
   */
  giveBack(text, files = [], focus = false) {
    const typed = this.text.value;
    if (text && tidy(typed) !== tidy(text)) this.text.value = typed.trim() ? `${text}\n\n${typed}` : text;
    this.files.give(files, true);
    this.#write();
    this.#shape();
    if (focus) this.text.focus();
  }

  /** @param {boolean} running whether there is something to stop */
  running(running) {
    if (this.#running === running) return;
    this.#running = running;
    this.#shape();
  }

  // A text that is long is a file beside the question, and browsers take seconds to
  // paste thousands of lines as if they were typed. A file that comes with a text, as
  // from an office, is a picture of it.
  /** @param {ClipboardEvent} event */
  #paste(event) {
    const text = event.clipboardData?.getData('text/plain') ?? '';
    const files = event.clipboardData?.files;
    if (!text.trim() && files?.length) {
      event.preventDefault();
      this.files.add(files);
    } else if (text.length >= file && this.files.addText(text.replace(/\r\n?/g, '\n'))) {
      event.preventDefault();
    }
  }

  // Files may be dropped anywhere: a browser would leave the page for them.
  #drops() {
    /** @param {DragEvent} event */
    const brings = (event) => event.dataTransfer?.types.includes('Files') ?? false;
    const over = (/** @type {boolean} */ yes) => document.body.classList.toggle('dropping', yes);
    addEventListener('dragover', (event) => {
      if (!brings(event)) return;
      event.preventDefault();
      over(true);
    });
    addEventListener('dragleave', (event) => !event.relatedTarget && over(false));
    addEventListener('drop', (event) => {
      over(false);
      if (!brings(event)) return;
      event.preventDefault();
      this.files.add(event.dataTransfer?.files ?? []);
      this.text.focus();
    });
  }

  /** Takes a text in where the caret is. @param {string} text */
  #insert(text) {
    const { value, selectionStart } = this.text;
    const before = value.slice(0, selectionStart);
    const gap = before.trim() ? '\n\n' : '';
    this.text.value = before + gap + text + value.slice(selectionStart);
    const caret = before.length + gap.length + text.length;
    this.text.setSelectionRange(caret, caret);
    this.#keep();
    this.#shape();
    this.text.focus();
  }

  // What is being sent waits for its files; when one of them fails, a person decides.
  #filesChanged() {
    this.#keep();
    if (this.#waiting && !this.files.uploading) {
      this.#waiting = false;
      if (this.files.failed) this.say(t('js.files.mend'));
      else this.submit();
    }
    this.#shape();
  }

  #keep() {
    clearTimeout(this.#later);
    if (this.text.value.length + this.files.kept.reduce((sum, { text = '' }) => sum + text.length, 0) < long) this.#write();
    else this.#later = setTimeout(() => this.#write(), moment);
  }

  #write() {
    clearTimeout(this.#later);
    this.#later = undefined;
    const now = this.#now();
    if (now === this.#stored) return;
    try {
      this.drafts.set(this.sessionId, this.text.value, this.fresh(), this.files.kept);
      this.#stored = now;
    } catch {
      // A full storage loses the draft on reload; sending says so, typing does not.
    }
  }

  /** What a draft would keep now. */
  #now() {
    return JSON.stringify([this.text.value, this.files.kept]);
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
      if (this.#now() !== this.#stored || this.files.uploading) return; // what could not be kept is only here
      const { selectionStart, value } = this.text;
      const stored = this.drafts.get(this.sessionId);
      if (JSON.stringify([stored, this.drafts.files(this.sessionId)]) === this.#stored) return;
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
    this.sendButton.hidden = stop && !/\S/.test(this.text.value) && this.files.empty;
    this.sendButton.classList.toggle('waiting', this.#waiting);
    const what = this.#waiting ? t('js.files.waits', { n: this.files.uploading }) : '';
    this.rule.textContent = what || this.#rule;
    this.rule.hidden = this.files.empty;
    this.files.shape();
    this.limit.show();
    const { style, value } = this.text;
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

  get most() {
    return Number(this.field.dataset.limit) || Infinity;
  }

  /** @param {string} text @returns {number} bytes as the server counts them */
  #bytes(text) {
    // No character of a string has more than three bytes: most texts need no counting.
    return text.length * 3 < this.most * 0.9 ? 0 : this.#encoder.encode(text).length;
  }

  /** Whether a text is longer than the server takes; then the counter says so. @param {string} text */
  refuses(text) {
    if (this.#bytes(text) <= this.most) return false;
    this.show();
    return true;
  }

  show() {
    const most = this.most;
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
