// The durable send queue. What a person sent is in localStorage, whole and with
// its id, before the first byte leaves; it is sent again under the same id until
// the server has said something definite about this request, over reloads,
// crashes, lost replies and days offline.
//
// One key per entry: tabs share the storage, and a queue in one value would let
// one tab overwrite what another just added. Several tabs may work on the same
// entry; the server sees one id.

/**
 * @typedef {object} Body
 * @property {string} sessionId
 * @property {string} requestId
 * @property {string} [content] of a question
 * @property {'edit' | 'regenerate' | 'continue'} [kind] none is a message
 * @property {string[]} [attachments] ids of what it carries
 * @property {string} [parentId] the message that an edit, another answer or more of one is about
 * @property {'restored'} [confirm] a person wants it run although a restore may have lost its answer
 *
 * @typedef {object} Entry
 * @property {1} v
 * @property {string} requestId
 * @property {string} sessionId
 * @property {string} account the only account under which it may be sent
 * @property {Body} body what is sent, each time
 * @property {import('./files.js').Attached[]} [files] what it carries, for the page
 * @property {'queued' | 'sending' | 'kept' | 'asked' | 'received'} state queued: not to be sent before those ahead of it
 *   are over; asked: not before a person says so
 * @property {number} createdAt
 * @property {number} tries how often it was not heard
 * @property {number} nextAt not tried before, except when the network or the page comes back
 * @property {number} notBefore what the server asked for; nothing overrides it
 * @property {boolean} [login] kept because nobody is signed in
 * @property {boolean} [first] of the queued ones: it goes before those that are not
 * @property {string} [room] space for what later states add, so that only the first write can find the storage full
 *
 * @typedef {object} Verdict what an answer says about a request
 * @property {'record' | 'failed' | 'refused' | 'unheard'} kind
 * @property {any} [record]
 * @property {any} [problem]
 * @property {number} [attempt] of a failed one: a retry must name it
 * @property {boolean} [login] nobody is signed in
 *
 * @typedef {object} Report
 * @property {Entry} entry
 * @property {'queued' | 'trying' | 'kept' | 'asked' | 'elsewhere' | 'record' | 'failed' | 'refused'} kind
 *   elsewhere: another tab changed or ended it; the server has it where its state is received
 * @property {any} [record]
 * @property {any} [problem]
 * @property {number} [attempt]
 * @property {boolean} [ended]
 */

const prefix = 'semel.outbox.';
const replyTimeout = 30_000;
const states = ['pending', 'generating', 'acknowledged', 'committed', 'failed'];

/**
 * Judges an answer by what it says about this request (contract, section 1).
 * Whatever did not come from Semel (a proxy's 404, a portal's page, half a
 * body) was not heard.
 * @param {number} status
 * @param {string} text the body
 * @param {string} requestId
 * @returns {Verdict}
 */
export function judge(status, text, requestId) {
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    return { kind: 'unheard' };
  }
  if (typeof json?.type === 'string' && json.type.startsWith('urn:semel:')) {
    if (json.requestId && json.requestId !== requestId) return { kind: 'unheard' };
    if (json.state === 'failed') return { kind: 'failed', problem: json };
    if ([401, 408, 425, 429, 503].includes(status)) return { kind: 'unheard', problem: json, login: status === 401 };
    return { kind: 'refused', problem: json };
  }
  if (json?.requestId !== requestId || !states.includes(json.state)) return { kind: 'unheard' };
  if (json.state === 'failed') return { kind: 'failed', record: json, problem: json.error ?? {} };
  return { kind: 'record', record: json };
}

/** @param {any} record whether its answer is final */
export function answered(record) {
  return record.state === 'acknowledged' || record.state === 'committed';
}

/** @param {Response} response @returns {number} the attempt it speaks of, 0 when it names none */
export function attemptOf(response) {
  return Number(response.headers.get('X-Attempt'));
}

/**
 * The wait before try number n+1: exponential, and jittered so that a hundred
 * tabs do not return to a restarted server in step.
 * @param {number} tries
 * @param {number} random in [0, 1)
 */
export function backoff(tries, random) {
  return Math.min(60_000, 500 * 2 ** Math.min(tries, 10)) * (0.5 + random / 2);
}

/**
 * @param {string | null} header Retry-After: seconds or a date
 * @param {number} now
 * @returns {number} milliseconds, 0 when there is none
 */
export function retryAfter(header, now) {
  if (!header) return 0;
  const wait = /^\s*\d+\s*$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now;
  return wait > 0 ? Math.min(wait, 3_600_000) : 0;
}

export class Outbox {
  /** @type {Set<string>} entries this tab is sending now */ #flying = new Set();
  #timer = 0;

  /**
   * @param {object} with_
   * @param {Storage} with_.storage
   * @param {string} with_.account
   * @param {(report: Report) => void} with_.report is told of every change
   * @param {(entry: Entry) => boolean} with_.watched whether the page hears of a received entry by other means
   * @param {(sessionId: string) => boolean} [with_.busy] whether the page sees a request of this conversation that is not over
   * @param {(url: string, init?: RequestInit) => Promise<Response>} with_.fetch
   * @param {() => number} [with_.now]
   * @param {() => number} [with_.random]
   */
  constructor({ storage, account, report, watched, busy = () => false, fetch, now = Date.now, random = Math.random }) {
    this.storage = storage;
    this.account = account;
    this.report = report;
    this.watched = watched;
    this.busy = busy;
    this.fetch = fetch;
    this.now = now;
    this.random = random;
  }

  /** Begins with whatever an earlier page left behind. */
  start() {
    addEventListener('online', () => this.kick());
    addEventListener('pageshow', (event) => event.persisted && this.kick());
    document.addEventListener('visibilitychange', () => (document.hidden ? this.#tick() : this.kick()));
    addEventListener('storage', (event) => this.#changedElsewhere(event));
    this.kick();
  }

  /**
   * Keeps a message and begins to send it. It throws when the browser cannot keep
   * it: then nothing was sent. A queued one is sent once nothing of its conversation
   * is under way.
   * @param {Body} body
   * @param {'sending' | 'queued'} [state]
   * @param {import('./files.js').Attached[]} [files]
   * @returns {Entry}
   */
  put(body, state = 'sending', files = []) {
    const { requestId, sessionId } = body;
    const now = this.now();
    /** @type {Entry} */
    const entry = { v: 1, requestId, sessionId, account: this.account, body, state, createdAt: now, tries: 0, nextAt: now, notBefore: 0 };
    if (files.length > 0) entry.files = files;
    this.#save({ ...entry, room: ' '.repeat(100) });
    if (state === 'queued') this.report({ kind: 'queued', entry });
    queueMicrotask(() => this.#tick());
    return entry;
  }

  /** @param {string} sessionId @returns {Entry[]} what waits behind others, in the order in which it will be sent */
  queue(sessionId) {
    const queued = this.list().filter((entry) => entry.sessionId === sessionId && entry.state === 'queued');
    return [...queued.filter((entry) => entry.first), ...queued.filter((entry) => !entry.first)];
  }

  /** @param {string} sessionId whether anything of a conversation is on its way from here */
  pending(sessionId) {
    return this.list().some((entry) => entry.sessionId === sessionId && entry.state !== 'queued' && entry.state !== 'asked');
  }

  /**
   * Takes an entry out of the queue before it was ever sent.
   * @param {string} requestId
   * @returns {Entry | undefined} nothing when it is not in the queue any more
   */
  take(requestId) {
    const entry = this.get(requestId);
    if (entry?.state !== 'queued') return undefined;
    this.#end(requestId);
    return entry;
  }

  /** Puts an entry of the queue before the others. @param {string} requestId */
  prefer(requestId) {
    const entry = this.get(requestId);
    if (entry?.state !== 'queued') return;
    for (const other of this.queue(entry.sessionId)) if (other.first) this.#save({ ...other, first: false });
    this.#save({ ...entry, first: true });
    this.report({ kind: 'queued', entry });
  }

  /** Sends an entry of the queue now, whatever is under way. @param {string} requestId */
  release(requestId) {
    const entry = this.get(requestId);
    if (entry?.state === 'queued') this.#save({ ...entry, state: 'sending', first: false, nextAt: this.now() });
    this.#tick();
  }

  /**
   * Sends what a restore may have lost the answer of: a person said so. It keeps its id.
   * @param {string} requestId
   * @returns {boolean} whether it was asked about still: a second click, or another tab, was not first
   */
  confirm(requestId) {
    const entry = this.get(requestId);
    if (entry?.state !== 'asked') return false;
    this.#save({ ...entry, body: { ...entry.body, confirm: 'restored' }, state: 'sending', tries: 0, nextAt: this.now(), notBefore: 0 });
    this.#tick();
    return true;
  }

  /** Drops what a person does not want sent after all. @param {string} requestId */
  withdraw(requestId) {
    if (this.get(requestId)?.state === 'asked') this.#end(requestId);
  }

  /** Looks at what is due: something the page sees is over. */
  look() {
    this.#tick();
  }

  /**
   * Sends an entry once more although it is on its way: what a second click does
   * to a page that mints its id before the click. The server sees a repeat.
   * @param {string} requestId
   */
  again(requestId) {
    const entry = this.get(requestId);
    if (entry) this.#post(entry).catch(() => {});
  }

  /** @param {string} requestId @returns {Entry | undefined} */
  get(requestId) {
    try {
      const entry = JSON.parse(this.storage.getItem(prefix + requestId) ?? 'null');
      if (entry?.v !== 1 || entry.account !== this.account) return undefined;
      delete entry.room;
      return entry;
    } catch {
      return undefined; // not ours, or damaged: neither sent nor deleted
    }
  }

  /** @returns {Entry[]} the entries of this account, oldest first */
  list() {
    const list = [];
    for (let i = 0; i < this.storage.length; i++) {
      const key = this.storage.key(i);
      const entry = key?.startsWith(prefix) && this.get(key.slice(prefix.length));
      if (entry) list.push(entry);
    }
    return list.sort((a, b) => a.createdAt - b.createdAt || (a.requestId < b.requestId ? -1 : 1));
  }

  /**
   * Ends an entry that the server has. Other tabs learn that from the state it
   * ends in: they may know neither of its answer nor of its conversation.
   * @param {string} requestId
   */
  settle(requestId) {
    this.received(requestId);
    this.#end(requestId);
  }

  /** Notes that the server has a request: it is in the page. @param {string} requestId */
  received(requestId) {
    const entry = this.get(requestId);
    if (entry && entry.state !== 'received') this.#save({ ...entry, state: 'received', nextAt: this.now() });
  }

  /** Takes back what was noted of an entry: it is sent again. @param {string} requestId */
  doubt(requestId) {
    const entry = this.get(requestId);
    if (entry?.state === 'received') this.#save({ ...entry, state: 'sending', nextAt: this.now() });
  }

  /** Tries everything now: the page or the network came back. */
  kick() {
    const now = this.now();
    for (const entry of this.list()) {
      if (entry.notBefore <= now && entry.nextAt > now && !this.#flying.has(entry.requestId)) this.#save({ ...entry, nextAt: now });
    }
    this.#tick();
  }

  // A conversation's messages leave in the order in which they were written: the
  // next one waits until the one before was heard, and a queued one until all that
  // is under way is over.
  #tick() {
    clearTimeout(this.#timer);
    const now = this.now();
    /** @type {Map<string, Entry>} the first unheard entry of each conversation */
    const first = new Map();
    let next = Infinity;
    const list = this.list();
    const waiting = new Set(list.filter((entry) => entry.state === 'queued').map((entry) => entry.sessionId));
    for (const sessionId of waiting) {
      // A page that is not seen sees nothing: what it left on screen says nothing.
      if (this.pending(sessionId) || (!document.hidden && this.busy(sessionId))) continue;
      const [entry] = this.queue(sessionId);
      const freed = { ...entry, state: /** @type {const} */ ('sending'), first: false, nextAt: now };
      this.#save(freed);
      list.splice(list.findIndex((other) => other.requestId === entry.requestId), 1, freed);
    }
    for (const entry of list) {
      if (entry.state === 'queued' || entry.state === 'asked') {
        continue;
      } else if (entry.state === 'received') {
        if (document.hidden ? !waiting.has(entry.sessionId) : this.watched(entry)) continue;
      } else if (first.has(entry.sessionId)) {
        if (first.get(entry.sessionId)?.state === 'kept' && entry.state === 'sending') this.#wait(entry);
        continue;
      } else {
        first.set(entry.sessionId, entry);
      }
      if (this.#flying.has(entry.requestId)) continue;
      if (entry.nextAt > now) next = Math.min(next, entry.nextAt);
      else this.#work(entry);
    }
    if (next < Infinity) this.#timer = setTimeout(() => this.#tick(), Math.min(next - now, 60_000));
  }

  /** @param {Entry} entry */
  async #work(entry) {
    this.#flying.add(entry.requestId);
    try {
      await (entry.state === 'received' ? this.#ask(entry) : this.#post(entry));
    } finally {
      this.#flying.delete(entry.requestId);
      this.#tick();
    }
  }

  /** @param {Entry} entry */
  async #post(entry) {
    // While this tab waits for the reply the others leave the entry alone.
    entry = { ...entry, state: entry.state === 'received' ? 'received' : 'sending', nextAt: this.now() + replyTimeout };
    this.#save(entry);
    this.report({ kind: 'trying', entry });
    const { verdict, wait } = await this.#call(entry, '/api/chat', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Accept: 'application/json', Prefer: 'wait=0' },
      body: JSON.stringify(entry.body),
    });
    const current = this.get(entry.requestId);
    if (!current) return; // another tab heard before us
    switch (verdict.kind) {
      case 'unheard':
        return this.#keep(current, verdict, wait);
      case 'refused':
        if (verdict.problem.code === 'restored_gap') return this.#doubted(current, verdict.problem);
        this.report({ kind: 'refused', entry: current, problem: verdict.problem, ended: true }); // the text is safe in a draft
        return this.#end(entry.requestId);
      case 'failed':
        this.settle(entry.requestId);
        return this.report({ ...verdict, kind: 'failed', entry: current, ended: true });
    }
    return this.#record(current, verdict.record, wait);
  }

  // A received entry ends when its answer is final. Where no stream will say so,
  // ask; a server that no longer knows it (restored from a backup) gets it again.
  /** @param {Entry} entry */
  async #ask(entry) {
    const url = `/api/chat/status/${encodeURIComponent(entry.requestId)}?sessionId=${encodeURIComponent(entry.sessionId)}`;
    const { verdict, wait } = await this.#call(entry, url, { headers: { Accept: 'application/json' } });
    const current = this.get(entry.requestId);
    if (!current) return;
    if (verdict.kind === 'record') return this.#record(current, verdict.record, wait);
    if (verdict.kind === 'refused') return this.#save({ ...current, state: 'sending', nextAt: this.now() });
    if (verdict.kind === 'unheard') {
      return this.#save({ ...current, tries: current.tries + 1, nextAt: this.now() + Math.max(wait, backoff(current.tries + 2, this.random())) });
    }
    this.settle(entry.requestId);
    this.report({ ...verdict, kind: 'failed', entry: current, ended: true });
  }

  /** @param {Entry} entry @param {any} record @param {number} wait */
  #record(entry, record, wait) {
    const ended = answered(record);
    entry = { ...entry, state: 'received', tries: 0, nextAt: this.now() + Math.max(wait, 2000), notBefore: 0, login: false };
    if (ended) this.settle(entry.requestId);
    else this.#save(entry);
    this.report({ kind: 'record', entry, record, ended });
  }

  /** @param {Entry} entry @param {Verdict} verdict @param {number} wait */
  #keep(entry, verdict, wait) {
    const now = this.now();
    const login = verdict.login === true;
    const pause = Math.max(wait, login ? 60_000 : backoff(entry.tries, this.random()));
    entry = {
      ...entry,
      state: entry.state === 'received' ? 'received' : 'kept',
      tries: entry.tries + 1,
      nextAt: now + pause,
      notBefore: now + wait,
      login,
    };
    this.#save(entry);
    this.report({ kind: 'kept', entry, problem: verdict.problem });
  }

  /** Nobody but a person may send it once more. @param {Entry} entry @param {any} problem */
  #doubted(entry, problem) {
    entry = { ...entry, state: 'asked', login: false };
    this.#save(entry);
    this.report({ kind: 'asked', entry, problem });
  }

  /** What stands behind a kept message is kept too. @param {Entry} entry */
  #wait(entry) {
    entry = { ...entry, state: 'kept' };
    this.#save(entry);
    this.report({ kind: 'kept', entry });
  }

  /** @param {Entry} entry @param {string} url @param {RequestInit} init */
  async #call(entry, url, init) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), replyTimeout);
    try {
      const response = await this.fetch(url, { ...init, redirect: 'error', cache: 'no-store', signal: abort.signal });
      const verdict = { ...judge(response.status, await response.text(), entry.requestId), attempt: attemptOf(response) };
      return { verdict, wait: retryAfter(response.headers.get('Retry-After'), this.now()) };
    } catch {
      return { verdict: /** @type {Verdict} */ ({ kind: 'unheard' }), wait: 0 };
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param {StorageEvent} event */
  #changedElsewhere(event) {
    if (!event.key?.startsWith(prefix)) return;
    let entry;
    try {
      entry = JSON.parse(event.newValue ?? event.oldValue ?? 'null');
    } catch {
      return;
    }
    if (entry?.account !== this.account) return;
    this.report({ kind: 'elsewhere', entry, ended: event.newValue === null });
    this.#tick();
  }

  /** @param {string} requestId */
  #end(requestId) {
    this.storage.removeItem(prefix + requestId);
    this.#tick();
  }

  /** @param {Entry} entry */
  #save({ room, ...entry }) {
    this.storage.setItem(prefix + entry.requestId, JSON.stringify(room ? { ...entry, room } : entry));
  }
}
