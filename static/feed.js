// The feed of what happens to a person's conversations: one stream, while the page
// is visible and no answer streams. What it says are hints; whoever hears one reads
// the truth. What happened while it was closed nobody says, so each beginning is a
// hint, too.

import { backoff } from './outbox.js';
import { Decoder } from './stream.js';

// The server writes at least a comment every 15 s.
const silence = 45_000;

export class Feed {
  /** @type {AbortController | undefined} */ #abort;
  #epoch;

  /**
   * @param {object} of
   * @param {number} of.epoch of the database that the page was made from
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   * @param {(sessions: string[]) => void} of.changed these conversations may have changed; "" is any
   * @param {() => void} of.restored the database is another than this page was made from
   * @param {string} [of.url] of another feed that tells this and more
   * @param {() => void} [of.more] it told that more
   */
  constructor({ epoch, fetch, changed, restored, url = '/api/events', more = () => {} }) {
    this.#epoch = epoch;
    this.fetch = fetch;
    this.url = url;
    this.more = more;
    this.changed = changed;
    this.restored = restored;
  }

  get open() {
    return this.#abort !== undefined;
  }

  start() {
    if (this.#abort) return;
    this.#abort = new AbortController();
    this.#run(this.#abort);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = undefined;
  }

  /** @param {AbortController} abort of this run */
  async #run(abort) {
    for (let tries = 0; !abort.signal.aborted; tries++) {
      let heard = false;
      try {
        heard = await this.#listen(abort);
      } catch {
        // as good as silence
      }
      if (heard) tries = 0;
      if (!abort.signal.aborted) await new Promise((resume) => setTimeout(resume, backoff(tries, Math.random())));
    }
  }

  /** @param {AbortController} run @returns {Promise<boolean>} whether anything was heard */
  async #listen(run) {
    const line = new AbortController(); // of this connection
    const stop = () => line.abort();
    run.signal.addEventListener('abort', stop);
    let watch = setTimeout(stop, silence);
    let heard = false;
    try {
      const response = await this.fetch(this.url, { headers: { Accept: 'text/event-stream' }, redirect: 'error', cache: 'no-store', signal: line.signal });
      if (response.status !== 200 || !response.headers.get('Content-Type')?.startsWith('text/event-stream') || !response.body) return false;
      const decoder = new Decoder();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done || run.signal.aborted) return heard;
        clearTimeout(watch);
        watch = setTimeout(stop, silence);
        const events = decoder.push(value);
        const told = events.filter(({ event }) => event !== 'changed');
        if (told.length > 0) this.changed(told.map((event) => this.#hear(event)));
        if (events.some(({ event }) => event === 'changed' || event === 'hello')) this.more();
        heard ||= events.length > 0;
      }
    } finally {
      clearTimeout(watch);
      run.signal.removeEventListener('abort', stop);
      line.abort();
    }
  }

  /** @param {import('./stream.js').ServerEvent} event @returns {string} the conversation it is about */
  #hear({ event, data }) {
    const { epoch, sessionId = '' } = JSON.parse(data);
    if (event === 'hello') {
      if (epoch !== this.#epoch) this.restored();
      this.#epoch = epoch;
    }
    return sessionId;
  }
}
