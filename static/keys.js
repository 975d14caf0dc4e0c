// What a key press means in a text field. Every field uses this and nothing else
// looks at Enter: an Enter that commits a composition (pinyin, kana, hangul) must
// never send.
//
// Chrome and Firefox: keydown {isComposing: true, keyCode: 229}, then compositionend.
// Safari: compositionend first, then keydown {isComposing: false, keyCode: 229}.
// Some embedded WebKits: compositionend, then an ordinary Enter, within the same tick.

const committing = 30; // ms after compositionend in which Enter still belongs to it

export class Composition {
  #ended = -Infinity;

  /** @param {EventTarget} field */
  constructor(field) {
    field.addEventListener('compositionend', (event) => {
      this.#ended = event.timeStamp;
    });
  }

  /**
   * Whether a key press belongs to a composition.
   * @param {KeyboardEvent} event
   */
  owns(event) {
    return event.isComposing || event.keyCode === 229 || event.timeStamp - this.#ended < committing;
  }

  /**
   * Whether a key press asks for the field to be sent.
   * @param {KeyboardEvent} event
   * @param {boolean} touch on a touch keyboard Enter is the only way to a new line
   */
  sends(event, touch) {
    if (event.key !== 'Enter' || event.shiftKey || event.altKey || this.owns(event)) return false;
    return event.ctrlKey || event.metaKey || !touch;
  }

  /**
   * Whether a key press asks for what is running to be stopped.
   * @param {KeyboardEvent} event
   */
  stops(event) {
    return event.key === 'Escape' && !this.owns(event);
  }
}
