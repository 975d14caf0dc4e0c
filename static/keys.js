// What a key press means in a text field. Every field uses this and nothing else
// looks at Enter: an Enter that commits a composition (pinyin, kana, hangul) must
// never send.
//
// Chrome and Firefox: keydown {isComposing: true, keyCode: 229}, then compositionend.
// Safari: compositionend first, then keydown {isComposing: false, keyCode: 229}.
// Some embedded WebKits: compositionend, then an ordinary Enter, within the same tick.

const committing = 30; // ms after compositionend in which Enter still belongs to it
const chosen = 'semel.enter'; // what a person chose for this browser

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
    return event.isComposing || event.keyCode === 229 || this.#justEnded(event);
  }

  /**
   * Whether a key press asks for the field to be sent.
   * @param {KeyboardEvent} event
   * @param {boolean} breaks whether a bare Enter breaks the line; see enterBreaks
   */
  sends(event, breaks) {
    if (event.key !== 'Enter' || event.shiftKey || event.altKey || this.owns(event)) return false;
    return event.ctrlKey || event.metaKey || !breaks;
  }

  /**
   * Whether a key press is the echo of one that ended a composition: an ordinary
   * Enter sooner than a hand can press it. It must not break the line either.
   * @param {KeyboardEvent} event
   */
  echoes(event) {
    return event.key === 'Enter' && !event.isComposing && event.keyCode !== 229 && this.#justEnded(event);
  }

  /**
   * Whether a key press asks for what is running to be stopped.
   * @param {KeyboardEvent} event
   */
  stops(event) {
    return event.key === 'Escape' && !this.owns(event);
  }

  /** @param {KeyboardEvent} event */
  #justEnded(event) {
    return event.timeStamp - this.#ended < committing;
  }
}

/** Whether this is a touch keyboard, where Enter is the only way to a new line. */
export function isTouch() {
  return matchMedia('(pointer: coarse)').matches;
}

/** Whether a bare Enter breaks the line, and one with Ctrl or Cmd sends. */
export function enterBreaks() {
  return isTouch() || localStorage.getItem(chosen) === 'breaks';
}

/** @param {boolean} breaks remembered for every page of this browser */
export function chooseEnter(breaks) {
  if (breaks) localStorage.setItem(chosen, 'breaks');
  else localStorage.removeItem(chosen);
}

/** @param {() => void} changed is told when another tab chooses */
export function onEnterChosen(changed) {
  addEventListener('storage', (event) => (event.key === chosen || event.key === null) && changed());
}

/** What the key is called that sends where Enter does not. */
export function sendingKey() {
  return /Mac|iPhone|iPad/.test(navigator.platform) ? '⌘' : 'Ctrl';
}

/** What the keys are called that send and that break the line. */
export function keyNames() {
  return enterBreaks() ? { send: `${sendingKey()}+Enter`, break: 'Enter' } : { send: 'Enter', break: 'Shift+Enter' };
}
