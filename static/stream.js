// One answer as it is written. The stream of a request is joined by its id, from
// any tab, as often as needed: what it sends first is everything so far.

import { judge, answered, backoff } from './outbox.js';

/**
 * @typedef {{event: string, id: string, data: string}} ServerEvent
 *
 * @typedef {object} Listener
 * @property {() => void} joined everything so far follows, from its first block
 * @property {(attempt: number) => void} attempt another attempt began: discard what it replaces
 * @property {(state: string) => void} state
 * @property {(block: number, html: string) => void} block
 * @property {(text: string) => void} reasoning
 * @property {(record: any) => void} end
 * @property {(problem: any) => void} failed
 * @property {() => void} lost there is no such stream, or not for us
 */

/** Decodes server-sent events from pieces cut anywhere. */
export class Decoder {
  #text = '';
  #event = '';
  #id = '';
  /** @type {string[]} */ #data = [];

  /** @param {string} piece @returns {ServerEvent[]} */
  push(piece) {
    this.#text += piece;
    const events = [];
    for (;;) {
      const end = this.#text.search(/[\r\n]/);
      // A lone CR at the end may be half of a CRLF.
      if (end < 0 || (end === this.#text.length - 1 && this.#text[end] === '\r')) return events;
      const line = this.#text.slice(0, end);
      this.#text = this.#text.slice(this.#text.startsWith('\r\n', end) ? end + 2 : end + 1);
      const event = this.#line(line);
      if (event) events.push(event);
    }
  }

  /** @param {string} line @returns {ServerEvent | undefined} */
  #line(line) {
    if (line === '') {
      const event = { event: this.#event || 'message', id: this.#id, data: this.#data.join('\n') };
      const some = this.#data.length > 0;
      this.#event = '';
      this.#data = [];
      return some ? event : undefined;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#event = value;
    else if (field === 'data') this.#data.push(value);
    else if (field === 'id') this.#id = value;
    return undefined;
  }
}

// The server writes at least a comment every 15 s. A line that is silent for
// longer is dead, even when the system has not noticed: a laptop slept, a
// network changed.
const silence = 45_000;

export class Stream {
  #closed = false;
  #abort = new AbortController();
  #attempt = 0;

  /**
   * @param {object} of
   * @param {string} of.requestId
   * @param {string} of.sessionId
   * @param {number} of.attempt the attempt that is on screen
   * @param {Listener} of.listener
   * @param {(url: string, init?: RequestInit) => Promise<Response>} of.fetch
   */
  constructor({ requestId, sessionId, attempt, listener, fetch }) {
    this.requestId = requestId;
    this.url = `/api/chat/stream/${encodeURIComponent(requestId)}?sessionId=${encodeURIComponent(sessionId)}&as=html`;
    this.listener = listener;
    this.fetch = fetch;
    this.#attempt = attempt;
    this.#run();
  }

  /** Stops listening. The answer goes on without us. */
  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  // Joins again after any end that is not the end of the answer. What kind of
  // error it was does not matter: browsers word them differently.
  async #run() {
    for (let tries = 0; !this.#closed; tries++) {
      let heard = false;
      try {
        heard = await this.#join();
      } catch {
        // as good as silence
      }
      if (heard) tries = 0;
      if (!this.#closed) await new Promise((resume) => setTimeout(resume, backoff(tries, Math.random())));
    }
  }

  /** @returns {Promise<boolean>} whether anything was heard */
  async #join() {
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    let watch = setTimeout(() => this.#abort.abort(), silence);
    let heard = false;
    try {
      const response = await this.fetch(this.url, { headers: { Accept: 'text/event-stream' }, redirect: 'error', cache: 'no-store', signal });
      if (response.status !== 200 || !response.headers.get('Content-Type')?.startsWith('text/event-stream') || !response.body) {
        this.#refused(response.status, await response.text());
        return false;
      }
      const decoder = new Decoder();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done || this.#closed) return heard;
        clearTimeout(watch);
        watch = setTimeout(() => this.#abort.abort(), silence);
        for (const event of decoder.push(value)) {
          heard = true;
          this.#hear(event);
          if (this.#closed) return heard;
        }
      }
    } finally {
      clearTimeout(watch);
      this.#abort.abort();
    }
  }

  /** @param {number} status @param {string} text */
  #refused(status, text) {
    const verdict = judge(status, text, this.requestId);
    if (verdict.kind === 'unheard') return;
    if (verdict.kind === 'record' && !answered(verdict.record)) return;
    this.close();
    if (verdict.kind === 'failed') this.listener.failed(verdict.problem);
    else this.listener.lost(); // the page knows more
  }

  /** @param {ServerEvent} event */
  #hear({ event, id, data }) {
    const value = JSON.parse(data);
    const attempt = event === 'accepted' || event === 'attempt' ? value.attempt : id ? Number(id.split('.')[0]) : this.#attempt;
    if (attempt < this.#attempt && event !== 'end' && event !== 'error') return;
    if (attempt > this.#attempt) {
      this.#attempt = attempt;
      this.listener.attempt(attempt);
    }
    switch (event) {
      case 'accepted':
        return this.listener.joined();
      case 'state':
        return this.listener.state(value.state);
      case 'delta':
        return this.listener.block(value.block, value.html);
      case 'reasoning':
        return this.listener.reasoning(value.text);
      case 'end':
        if (value.requestId !== this.requestId) return undefined;
        this.close();
        return this.listener.end(value);
      case 'error':
        this.close();
        return this.listener.failed(value);
    }
    return undefined;
  }
}
