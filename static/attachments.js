// Files beside what is typed: chosen, dropped or pasted, each a chip that is uploaded
// at once. What the server has is kept with the draft by its id; a pasted text that it
// has not got yet is kept as it is, so that a reload loses none.

import { address, isImage, size } from './files.js';
import { clone } from './log.js';
import { explain, t } from './strings.js';

/**
 * @typedef {import('./files.js').Attached} Attached
 *
 * @typedef {object} Chip
 * @property {Attached} file
 * @property {HTMLElement} line
 * @property {'uploading' | 'ready' | 'failed'} state
 * @property {Blob} [blob] what is uploaded
 * @property {boolean} [again] it may be tried again
 * @property {AbortController} [abort]
 */

const keptText = 1_000_000; // characters of pasted texts that a draft keeps
const retries = 3; // of an upload that was not heard, before a person is asked
const pause = 2000;

export class Attachments {
  /** @type {Chip[]} */ #chips = [];

  /**
   * @param {object} of
   * @param {HTMLElement} of.list
   * @param {{count: number, bytes: number, total: number}} of.limits
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   * @param {() => void} of.changed
   * @param {(text: string) => void} of.say what is wrong
   * @param {(text: string) => void} of.announce
   * @param {(text: string) => void} [of.toText] takes a text into the field; none: there is no such way
   * @param {() => number} [of.longest] bytes that the field takes
   */
  constructor({ list, limits, fetch, changed, say, announce, toText, longest = () => 0 }) {
    this.list = list;
    this.limits = limits;
    this.fetch = fetch;
    this.changed = changed;
    this.say = say;
    this.announce = announce;
    this.toText = toText;
    this.longest = longest;
    list.addEventListener('click', (event) => {
      const button = /** @type {HTMLElement} */ (event.target).closest('button');
      const chip = this.#chips.find(({ line }) => button && line.contains(button));
      if (!button || !chip) return;
      event.preventDefault();
      if (button.dataset.do === 'remove') this.#remove(chip);
      if (button.dataset.do === 'again') this.#upload(chip);
      if (button.dataset.do === 'text') this.#asText(chip);
    });
    addEventListener('online', () => this.#chips.forEach((chip) => chip.again && this.#upload(chip)));
  }

  /** What the server has, in order. @returns {Attached[]} */
  get ready() {
    return this.#chips.filter(({ state }) => state === 'ready').map(({ file }) => file);
  }

  get empty() {
    return this.#chips.length === 0;
  }

  get uploading() {
    return this.#chips.filter(({ state }) => state === 'uploading').length;
  }

  get failed() {
    return this.#chips.some(({ state }) => state === 'failed');
  }

  /** What a draft keeps. @returns {Attached[]} */
  get kept() {
    let room = keptText;
    return this.#chips.map(({ file }) => file).filter(({ id, text }) => id || (text !== undefined && (room -= text.length) >= 0));
  }

  /** Shows what a draft kept, in place of all there is. @param {Attached[]} files */
  show(files) {
    for (const chip of this.#chips) chip.abort?.abort();
    this.#chips = [];
    this.list.replaceChildren();
    this.give(files, true);
  }

  /**
   * Adds what was here before: not sent, or kept.
   * @param {Attached[]} files @param {boolean} [look] whether the server may have lost them
   */
  give(files, look) {
    for (const file of files) {
      if (file.id && this.#chips.some((chip) => chip.file.id === file.id)) continue;
      const chip = this.#add(file);
      if (!file.id) this.#upload(chip);
      else this.#is(chip, 'ready');
    }
    if (look) this.check();
    this.shape();
  }

  /** Looks whether the server still has what it had: what is not sent for long goes. */
  check() {
    for (const chip of this.#chips.filter(({ file }) => file.id)) {
      this.fetch(address(chip.file), { method: 'HEAD', cache: 'no-store' }).then((response) => {
        if (response.status === 404 && this.#chips.includes(chip)) this.#fails(chip, explain({ code: 'attachment_unknown' }));
      }, () => {});
    }
  }

  clear() {
    this.show([]);
  }

  /** @param {Iterable<File>} files chosen, dropped or pasted */
  add(files) {
    for (const blob of files) {
      if (this.#chips.length >= this.limits.count) {
        this.say(explain({ code: 'too_many_attachments' }));
        break;
      }
      this.#begin({ name: blob.name || 'image.png', mediaType: blob.type, bytes: blob.size }, blob);
    }
    this.changed();
  }

  /** @param {string} text pasted @returns {boolean} whether there was room for one more */
  addText(text) {
    if (this.#chips.length >= this.limits.count) return false;
    const blob = new Blob([text]);
    this.#begin({ name: t('js.files.pasted'), mediaType: 'text/plain', bytes: blob.size, text }, blob);
    this.changed();
    return true;
  }

  /** @param {Attached} file @param {Blob} blob */
  #begin(file, blob) {
    const chip = this.#add(file);
    chip.blob = blob;
    const total = this.#chips.reduce((sum, other) => sum + other.file.bytes, 0);
    if (file.bytes > this.limits.bytes) this.#fails(chip, explain({ code: 'file_too_large' }));
    else if (total > this.limits.total) this.#fails(chip, explain({ code: 'attachments_too_large' }));
    else this.#upload(chip);
  }

  /** @param {Attached} file @returns {Chip} */
  #add(file) {
    /** @type {Chip} */
    const chip = { file, line: clone('chip'), state: 'uploading' };
    this.#chips.push(chip);
    this.list.append(chip.line);
    this.#is(chip, 'uploading');
    return chip;
  }

  /** @param {Chip} chip */
  async #upload(chip) {
    const { file } = chip;
    chip.blob ??= new Blob([file.text ?? '']);
    chip.abort?.abort();
    const abort = (chip.abort = new AbortController());
    chip.again = false;
    this.#is(chip, 'uploading');
    for (let tries = 1; ; tries++) {
      const heard = await this.#post(chip, abort.signal);
      if (abort.signal.aborted) return;
      if (heard?.id) {
        if (this.#chips.some((other) => other !== chip && other.file.id === heard.id)) return this.#drop(chip); // it is there already
        chip.file = heard;
        this.#is(chip, 'ready');
        this.announce(t('js.files.added', { name: heard.name }));
        return this.changed();
      }
      if (heard?.problem) return this.#fails(chip, explain(heard.problem));
      if (tries > retries) break;
      await new Promise((resolve) => setTimeout(resolve, pause * tries));
      if (abort.signal.aborted) return;
    }
    chip.again = true;
    this.#fails(chip, t('js.files.unreachable'));
  }

  /**
   * @param {Chip} chip @param {AbortSignal} signal
   * @returns {Promise<any>} the attachment, its problem, or nothing when nothing was heard
   */
  async #post(chip, signal) {
    try {
      const response = await this.fetch(`/api/attachments?name=${encodeURIComponent(chip.file.name)}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/octet-stream', Accept: 'application/json' },
        body: chip.blob,
        redirect: 'error',
        signal,
      });
      const json = await response.json();
      if (response.ok && typeof json.id === 'string') return json;
      const final = typeof json.type === 'string' && json.type.startsWith('urn:semel:') && ![401, 408, 425, 429, 503].includes(response.status);
      return final ? { problem: json } : undefined;
    } catch {
      return undefined;
    }
  }

  /** @param {Chip} chip @param {string} why */
  #fails(chip, why) {
    chip.state = 'failed';
    this.#is(chip, 'failed', why);
    this.announce(t('js.files.failed', { name: chip.file.name, why }));
    this.changed();
  }

  /** @param {Chip} chip @param {Chip['state']} state @param {string} [why] */
  #is(chip, state, why) {
    chip.state = state;
    const { line, file } = chip;
    /** @param {string} selector @returns {any} */
    const $ = (selector) => line.querySelector(selector);
    line.dataset.state = state;
    line.setAttribute('aria-busy', String(state === 'uploading'));
    $('.name').textContent = file.name;
    $('.size').textContent = state === 'uploading' ? t('js.files.uploading') : why ?? size(file.bytes);
    $('[data-do=remove]').setAttribute('aria-label', t('js.files.remove', { name: file.name }));
    $('[data-do=remove]').title = t('js.files.remove', { name: file.name });
    $('[data-do=again]').hidden = !chip.again;
    const text = file.text !== undefined || (state === 'ready' && !isImage(file) && file.bytes <= this.longest());
    $('[data-do=text]').hidden = !this.toText || !text;
    if (state !== 'ready') return;
    $('.what').href = address(file);
    if (isImage(file)) {
      $('img').src = address(file);
      $('img').hidden = false;
      $('.icon').remove();
    }
  }

  /** @param {Chip} chip */
  #remove(chip) {
    const heir = (chip.line.nextElementSibling ?? chip.line.previousElementSibling)?.querySelector('[data-do=remove]');
    this.#drop(chip);
    this.announce(t('js.files.gone', { name: chip.file.name }));
    const field = this.list.closest('form')?.querySelector('textarea');
    /** @type {HTMLElement | null | undefined} */ (heir ?? field)?.focus();
  }

  /** @param {Chip} chip */
  #drop(chip) {
    chip.abort?.abort();
    chip.line.remove();
    this.#chips = this.#chips.filter((other) => other !== chip);
    this.changed();
  }

  /** @param {Chip} chip */
  async #asText(chip) {
    let { text } = chip.file;
    try {
      text ??= await (await this.fetch(address(chip.file))).text();
    } catch {
      return this.say(t('js.unreachable'));
    }
    this.#drop(chip);
    this.toText?.(text);
    this.announce(t('js.files.isText', { name: chip.file.name }));
  }

  shape() {
    this.list.hidden = this.empty;
  }
}
