// The text field: grows, keeps a draft per conversation, and empties at once when
// a message is sent, so that a second Enter or a second click finds nothing to
// send.

import { Composition } from './keys.js';

const prefix = 'semel.draft.';

/** What is typed but not sent, per conversation. */
export class Drafts {
  /** @param {Storage} storage */
  constructor(storage) {
    this.storage = storage;
  }

  /** @param {string} sessionId */
  get(sessionId) {
    return this.storage.getItem(prefix + sessionId) ?? '';
  }

  /** @param {string} sessionId @param {string} text */
  set(sessionId, text) {
    if (text) this.storage.setItem(prefix + sessionId, text);
    else this.storage.removeItem(prefix + sessionId);
  }

  /**
   * Gives back a text that was refused, above whatever was typed since.
   * @param {string} sessionId @param {string} text
   */
  giveBack(sessionId, text) {
    const typed = this.get(sessionId);
    if (typed !== text) this.set(sessionId, typed ? `${text}\n\n${typed}` : text);
  }
}

// After a send, Stop takes the place of Send under the very pointer that may be
// in the middle of a double click. Until then Send stays, with nothing to send.
const doubleClick = 800;

export class Composer {
  #running = false;
  #settling = false;

  /**
   * @param {object} of
   * @param {HTMLFormElement} of.form
   * @param {Drafts} of.drafts
   * @param {string} of.sessionId
   * @param {(text: string) => boolean} of.send returns whether the text is safe; if not it stays here
   * @param {() => void} of.stop
   */
  constructor({ form, drafts, sessionId, send, stop }) {
    this.form = form;
    this.drafts = drafts;
    this.sessionId = sessionId;
    this.send = send;
    this.text = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem('content'));
    this.sendButton = /** @type {HTMLButtonElement} */ (form.querySelector('#send'));
    this.stopButton = /** @type {HTMLButtonElement} */ (form.querySelector('#stop'));

    this.touch = matchMedia('(pointer: coarse)');
    const composition = new Composition(this.text);
    this.text.enterKeyHint = this.touch.matches ? 'enter' : 'send';
    this.text.addEventListener('keydown', (event) => {
      if (!composition.sends(event, this.touch.matches)) return;
      event.preventDefault();
      form.requestSubmit(this.sendButton);
    });
    // Some drivers of keyboards deliver the character although its keydown was handled.
    this.text.addEventListener('keypress', (event) => {
      if (composition.sends(event, this.touch.matches)) event.preventDefault();
    });
    document.addEventListener('keydown', (event) => {
      if (this.#running && !document.querySelector(':popover-open:not(#toast)') && composition.stops(event)) stop();
    });
    this.text.addEventListener('input', () => {
      this.#keep();
      this.#shape();
    });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    this.stopButton.addEventListener('click', stop);

    form.noValidate = true; // an empty field is nothing to send, not a mistake to point at

    // A text that came with the page was given back by the server: it comes first.
    if (this.text.value) drafts.giveBack(sessionId, this.text.value);
    this.show();
  }

  /** Sends what is typed, if anything is. */
  submit() {
    const text = this.text.value.replace(/^\s*\n/, '').trimEnd();
    if (text === '' || !this.send(text)) return;
    this.text.value = '';
    this.#keep();
    this.#settling = true;
    setTimeout(() => {
      this.#settling = false;
      this.#shape();
    }, doubleClick);
    this.#shape();
    if (!this.touch.matches) this.text.focus();
  }

  /** Shows the draft as it is stored. */
  show() {
    this.text.value = this.drafts.get(this.sessionId);
    this.#shape();
  }

  /** Puts a text into the field, for a person to send. @param {string} text */
  suggest(text) {
    this.text.value = text;
    this.#keep();
    this.#shape();
    this.text.focus();
  }

  /** @param {boolean} running whether there is something to stop */
  running(running) {
    this.#running = running;
    this.#shape();
  }

  #keep() {
    try {
      this.drafts.set(this.sessionId, this.text.value);
    } catch {
      // A full storage loses the draft on reload; sending says so, typing does not.
    }
  }

  #shape() {
    const stop = this.#running && !this.#settling;
    this.stopButton.hidden = !stop;
    this.sendButton.hidden = stop && this.text.value.trim() === '';
    this.text.style.height = 'auto';
    this.text.style.height = `${this.text.scrollHeight}px`;
  }
}
