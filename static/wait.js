// How long a question has waited for the first word of its answer. It is said once
// that is long, so that a slow model and a dead page do not look alike.

import { serverNow } from './clock.js';
import { t } from './strings.js';
import { timeOf } from './ulid.js';

const long = 10_000;

export class Wait {
  /** @type {ReturnType<typeof setInterval> | undefined} */ #timer;

  /** @param {import('./log.js').Log} log */
  constructor(log) {
    this.log = log;
  }

  /** @param {HTMLElement | undefined} holder what is being answered, if anything is */
  of(holder) {
    clearInterval(this.#timer);
    if (!holder) return;
    const tell = () => this.#tell(holder);
    this.#timer = setInterval(tell, 1000);
    tell();
  }

  /** @param {HTMLElement} holder */
  #tell(holder) {
    const { state, request = '' } = holder.dataset;
    if (state !== 'generating') return; // what waits for its turn waits for no word
    const answer = this.log.find('assistant', request);
    const silent = !answer?.querySelector('.body')?.childElementCount && !answer?.querySelector('.reasoning:not([hidden])');
    const waited = serverNow() - timeOf(request);
    const s = Math.floor(waited / 1000);
    this.log.why(holder, silent && waited >= long ? t('js.noWord', { time: `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}` }) : '');
  }
}
