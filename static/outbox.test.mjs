import assert from 'node:assert/strict';
import { beforeEach, mock, test } from 'node:test';

import { Outbox, backoff, judge, retryAfter } from './outbox.js';

class Memory {
  #map = new Map();
  full = false;
  get length() { return this.#map.size; }
  key(i) { return [...this.#map.keys()][i] ?? null; }
  getItem(key) { return this.#map.get(key) ?? null; }
  removeItem(key) { this.#map.delete(key); }
  setItem(key, value) {
    if (this.full) throw new DOMException('full', 'QuotaExceededError');
    this.#map.set(key, value);
  }
}

const problem = (code, more = {}) => ({ type: `urn:semel:problem:${code}`, code, ...more });
const reply = (status, body, headers = {}) => new Response(typeof body === 'string' ? body : JSON.stringify(body), { status, headers });
const lost = () => { throw new TypeError('Load failed'); };

// A page with its outbox, and a server that answers from a list of replies.
function page({ storage = new Memory(), replies = [], watched = () => false, account = '1' } = {}) {
  const p = { storage, replies, calls: [], reports: [] };
  p.outbox = new Outbox({
    storage,
    account,
    watched,
    report: (r) => p.reports.push(r),
    random: () => 0,
    fetch: async (url, init = {}) => {
      p.calls.push({ url, method: init.method ?? 'GET', body: init.body && JSON.parse(init.body), stored: storage.getItem(`semel.outbox.${JSON.parse(init.body ?? '{}').requestId}`) });
      const next = p.replies.shift() ?? lost;
      return typeof next === 'function' ? next() : next;
    },
  });
  p.kinds = () => p.reports.map((r) => r.kind);
  return p;
}

const body = (n, sessionId = 'S1234567') => ({ sessionId, requestId: `R000000${n}`, content: `text ${n}` });
const record = (n, state, more = {}) => ({ requestId: `R000000${n}`, state, attempt: 1, ...more });

// Lets everything that is due happen: replies, and timers up to ms.
async function pass(ms = 0) {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  mock.timers.tick(ms);
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}

beforeEach(() => {
  globalThis.document = { hidden: false };
  mock.timers.reset();
  mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 });
});

test('what an answer says about a request', () => {
  const says = (status, value) => judge(status, typeof value === 'string' ? value : JSON.stringify(value), 'R0000001').kind;
  for (const [status, value, want] of [
    [202, record(1, 'pending'), 'record'],
    [200, record(1, 'committed'), 'record'],
    [200, record(1, 'failed', { error: problem('line_lost') }), 'failed'],
    [502, problem('line_lost', { state: 'failed' }), 'failed'],
    [503, problem('provider_busy', { state: 'failed' }), 'failed'],
    [409, problem('restored_gap'), 'refused'],
    [410, problem('conversation_gone'), 'refused'],
    [412, problem('key_expired'), 'refused'],
    [413, problem('too_large'), 'refused'],
    [422, problem('key_reused'), 'refused'],
    [400, problem('key_from_future'), 'refused'],
    [500, problem('internal'), 'refused'],
    [401, problem('login'), 'unheard'],
    [408, problem('timeout'), 'unheard'],
    [425, problem('early'), 'unheard'],
    [429, problem('rate_limited'), 'unheard'],
    [503, problem('overloaded'), 'unheard'],
    [404, 'Not Found', 'unheard'], // a proxy's
    [200, '<html>Sign in to the wireless network</html>', 'unheard'],
    [200, '{"requestId": "R0000001", "sta', 'unheard'], // cut
    [200, record(2, 'committed'), 'unheard'], // another request
    [200, { requestId: 'R0000001', state: 'done' }, 'unheard'],
    [404, { type: 'about:blank', status: 404 }, 'unheard'], // another program's problem
    [502, problem('line_lost', { state: 'failed', requestId: 'R0000002' }), 'unheard'],
    [200, 'null', 'unheard'],
  ]) {
    assert.equal(says(status, value), want, `${status} ${JSON.stringify(value)}`);
  }
  assert.equal(judge(401, JSON.stringify(problem('login')), 'R0000001').login, true);
});

test('the wait grows, is jittered and has an end', () => {
  assert.deepEqual([0, 1, 2, 6, 7, 50].map((n) => backoff(n, 0)), [250, 500, 1000, 16000, 30000, 30000]);
  assert.equal(backoff(7, 0.999) > 59_000, true);
  assert.equal(retryAfter('7', 0), 7000);
  assert.equal(retryAfter(new Date(60_000).toUTCString(), 20_000), 40_000);
  assert.deepEqual([retryAfter(null, 0), retryAfter('soon', 0), retryAfter('-3', 1_800_000_000_000)], [0, 0, 0]);
  assert.equal(retryAfter('999999999', 0), 3_600_000);
});

test('the whole message is stored before the first byte leaves', async () => {
  const p = page({ replies: [reply(202, record(1, 'pending'))] });
  p.outbox.put(body(1));
  assert.equal(p.calls.length, 0);
  assert.deepEqual(JSON.parse(p.storage.getItem('semel.outbox.R0000001')).body, body(1));
  await pass();
  assert.equal(p.calls.length, 1);
  const stored = JSON.parse(p.calls[0].stored);
  assert.deepEqual([stored.body, stored.sessionId, stored.account, stored.state], [body(1), 'S1234567', '1', 'sending']);
});

test('a message that cannot be stored is not sent', async () => {
  const p = page();
  p.storage.full = true;
  assert.throws(() => p.outbox.put(body(1)));
  await pass(100_000);
  assert.equal(p.calls.length, 0);
});

test('storage that fills up later stops nothing', async () => {
  const p = page({ replies: [lost, reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  const size = p.storage.getItem('semel.outbox.R0000001').length;
  const set = p.storage.setItem.bind(p.storage);
  p.storage.setItem = (key, value) => { assert.ok(value.length <= size, 'an entry grew'); set(key, value); };
  await pass(60_000);
  assert.equal(p.outbox.list().length, 0);
});

test('until something definite is heard the same body goes out under the same id', async () => {
  const p = page({ replies: [lost, reply(404, 'Not Found'), reply(200, '<html>portal'), reply(503, problem('overloaded')), reply(202, record(1, 'pending')), reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  for (let i = 0; i < 6; i++) await pass(61_000);
  const posts = p.calls.filter((c) => c.method === 'POST');
  assert.equal(posts.length, 5);
  for (const call of posts) assert.deepEqual(call.body, body(1));
  assert.deepEqual(p.calls.at(-1).url, '/api/chat/status/R0000001?sessionId=S1234567');
  assert.equal(p.outbox.list().length, 0);
  assert.deepEqual(p.kinds().filter((k) => k !== 'trying'), ['kept', 'kept', 'kept', 'kept', 'record', 'record']);
  assert.equal(p.reports.at(-1).ended, true);
});

test('an accepted message stays until its answer is final', async () => {
  const p = page({ replies: [reply(202, record(1, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  await pass(600_000);
  assert.equal(p.calls.length, 1); // the page watches it by its stream
  assert.equal(p.outbox.list()[0].state, 'received');
  p.outbox.settle('R0000001');
  assert.equal(p.outbox.list().length, 0);
});

test('a failure of the request ends the entry', async () => {
  const p = page({ replies: [reply(502, problem('line_lost', { state: 'failed', requestId: 'R0000001' }))] });
  p.outbox.put(body(1));
  await pass();
  assert.equal(p.outbox.list().length, 0);
  assert.equal(p.reports.at(-1).kind, 'failed');
});

test('a refused text is handed back before the entry goes', async () => {
  for (const status of [400, 409, 410, 412, 413, 422]) {
    const p = page({ replies: [reply(status, problem('x'))] });
    let kept;
    const report = p.outbox.report;
    p.outbox.report = (r) => { if (r.kind === 'refused') kept = p.storage.length; report(r); };
    p.outbox.put(body(1));
    await pass();
    assert.equal(kept, 1, `status ${status}: the entry was gone before its text was safe`);
    assert.equal(p.outbox.list().length, 0);
    assert.equal(p.reports.at(-1).entry.body.content, 'text 1');
  }
});

test('what a restore may have lost the answer of waits for a word, and then goes once under its id', async () => {
  const storage = new Memory();
  const gap = () => reply(409, problem('restored_gap'));
  const p = page({ storage, replies: [gap(), gap(), reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  p.outbox.put(body(2)); // it does not wait for the word about the first
  await pass(600_000);
  assert.deepEqual(p.kinds(), ['trying', 'asked', 'trying', 'asked']);
  const again = page({ storage, replies: p.replies }); // after a reload
  again.outbox.kick();
  await pass(600_000);
  assert.equal(again.calls.length, 0);
  assert.deepEqual(again.outbox.list().map((e) => e.state), ['asked', 'asked']);
  assert.equal(again.outbox.confirm('R0000001'), true);
  assert.equal(again.outbox.confirm('R0000001'), false); // a second click
  assert.equal(p.outbox.confirm('R0000001'), false); // another tab
  p.outbox.withdraw('R0000001'); // which says no, too late
  await pass();
  assert.deepEqual(again.calls.map((c) => c.body), [{ ...body(1), confirm: 'restored' }]);
  again.outbox.withdraw('R0000002');
  assert.equal(again.outbox.list().length, 0);
  await pass(600_000);
  assert.equal(again.calls.length + p.calls.length, 3);
});

test('a text that another tab has handed back is not handed back twice', async () => {
  const storage = new Memory();
  let answer;
  const p = page({ storage, replies: [() => new Promise((resolve) => (answer = resolve))] });
  p.outbox.put(body(1));
  await pass();
  storage.removeItem('semel.outbox.R0000001');
  answer(reply(422, problem('key_reused')));
  await pass();
  assert.deepEqual(p.kinds(), ['trying']);
});

test('Retry-After is honoured, even when the network comes back', async () => {
  const p = page({ replies: [reply(429, problem('rate_limited'), { 'Retry-After': '30' }), reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  await pass(10_000);
  p.outbox.kick();
  await pass(10_000);
  assert.equal(p.calls.length, 1);
  await pass(11_000);
  assert.equal(p.calls.length, 2);
});

test('when the network comes back there is no more waiting', async () => {
  const p = page({ replies: [lost, lost, lost, lost, lost, reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  for (let i = 0; i < 4; i++) await pass(20_000);
  const before = p.calls.length;
  assert.equal(before, 5);
  p.outbox.kick();
  await pass();
  assert.equal(p.calls.length, 6);
  assert.equal(p.outbox.list().length, 0);
});

test('after a reload the entry is sent again with the same id', async () => {
  const first = page({ replies: [() => new Promise(() => {})] }); // the page dies before the reply
  first.outbox.put(body(1));
  await pass();
  const second = page({ storage: first.storage, replies: [reply(200, record(1, 'committed'))] });
  second.outbox.kick();
  await pass();
  assert.deepEqual(second.calls.map((c) => c.body), [body(1)]);
  assert.equal(second.outbox.list().length, 0);
});

test('an entry is sent under its own account only', async () => {
  const first = page({ replies: [lost] });
  first.outbox.put(body(1));
  await pass();
  const other = page({ storage: first.storage, account: '2', replies: [reply(200, record(1, 'committed'))] });
  other.outbox.kick();
  await pass(600_000);
  assert.equal(other.calls.length, 0);
  assert.equal(first.outbox.list().length, 1);
});

test('a message nobody is signed in for is kept, and says why', async () => {
  const p = page({ replies: [reply(401, problem('login')), reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  await pass();
  assert.deepEqual([p.reports.at(-1).kind, p.reports.at(-1).entry.login], ['kept', true]);
  p.outbox.kick(); // back from the login page
  await pass();
  assert.deepEqual(p.calls[1].body, body(1));
});

test('messages of a conversation leave in order, those of another do not wait', async () => {
  let answer;
  const p = page({ replies: [() => new Promise((resolve) => (answer = resolve)), reply(202, record(3, 'pending')), reply(202, record(2, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  mock.timers.tick(1);
  p.outbox.put(body(2));
  p.outbox.put(body(3, 'S7654321'));
  await pass();
  assert.deepEqual(p.calls.map((c) => c.body.requestId), ['R0000001', 'R0000003']);
  answer(reply(202, record(1, 'pending')));
  await pass();
  assert.deepEqual(p.calls.map((c) => c.body.requestId), ['R0000001', 'R0000003', 'R0000002']);
});

test('what stands behind a kept message is kept too', async () => {
  const p = page();
  p.outbox.put(body(1));
  mock.timers.tick(1);
  p.outbox.put(body(2));
  await pass();
  assert.deepEqual(p.outbox.list().map((e) => e.state), ['kept', 'kept']);
  assert.equal(p.calls.length, 1);
});

test('a server that lost an accepted message gets it again', async () => {
  const p = page({ replies: [reply(202, record(1, 'pending')), reply(404, problem('not_found')), reply(200, record(1, 'committed'))] });
  p.outbox.put(body(1));
  await pass(5000);
  await pass(5000);
  assert.deepEqual(p.calls.map((c) => c.method), ['POST', 'GET', 'POST']);
  assert.deepEqual(p.calls[2].body, body(1));
  assert.equal(p.outbox.list().length, 0);
});

test('a second click sends the same id again', async () => {
  const p = page({ replies: [() => new Promise(() => {}), reply(202, record(1, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  await pass();
  p.outbox.again('R0000001');
  await pass();
  assert.deepEqual(p.calls.map((c) => c.body), [body(1), body(1)]);
});

test('a damaged or foreign value in the storage is left alone', async () => {
  const p = page();
  p.storage.setItem('semel.outbox.R0000009', '{');
  p.storage.setItem('semel.outbox.R0000008', '{"v":2,"account":"1"}');
  p.storage.setItem('other', 'x');
  p.outbox.kick();
  await pass(60_000);
  assert.deepEqual([p.calls.length, p.storage.length, p.outbox.list()], [0, 3, []]);
});

test('what the server does not show is sent again', async () => {
  const p = page({ replies: [reply(202, record(1, 'pending')), reply(200, record(1, 'committed'))], watched: () => true });
  p.outbox.put(body(1));
  await pass();
  p.outbox.doubt('R0000001');
  p.outbox.kick();
  await pass();
  assert.deepEqual(p.calls.map((c) => c.body), [body(1), body(1)]);
  assert.equal(p.outbox.list().length, 0);
});

// The queue

const ids = (entries) => entries.map((e) => e.requestId);
const posted = (p) => p.calls.filter((c) => c.method === 'POST').map((c) => c.body.requestId);

test('what is queued is kept whole and not sent while the page sees an answer run', async () => {
  let busy = true;
  const p = page({ replies: [reply(200, record(1, 'committed')), reply(200, record(2, 'committed'))] });
  p.outbox.busy = () => busy;
  p.outbox.put(body(1), 'queued');
  p.outbox.put(body(2), 'queued');
  await pass(100_000);
  p.outbox.kick();
  await pass();
  assert.deepEqual(p.calls, []);
  assert.deepEqual(JSON.parse(p.storage.getItem('semel.outbox.R0000001')).body, body(1));
  assert.deepEqual(ids(p.outbox.queue('S1234567')), ['R0000001', 'R0000002']);
  assert.deepEqual(p.kinds(), ['queued', 'queued']);
  busy = false;
  p.outbox.look();
  await pass();
  assert.deepEqual(posted(p), ['R0000001', 'R0000002']);
  assert.equal(p.outbox.list().length, 0);
});

test('one of the queue leaves when all before it is over, whether it was answered or failed', async () => {
  const p = page({ replies: [reply(202, record(1, 'generating')), reply(202, record(2, 'generating')), reply(202, record(3, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  p.outbox.put(body(2), 'queued');
  p.outbox.put(body(3), 'queued');
  await pass(10_000);
  assert.deepEqual(posted(p), ['R0000001']);
  p.outbox.settle('R0000001');
  await pass(10_000);
  assert.deepEqual(posted(p), ['R0000001', 'R0000002']);
  p.replies.unshift(reply(422, problem('stopped', { state: 'failed' })));
  p.outbox.doubt('R0000002');
  p.outbox.look();
  await pass(10_000);
  assert.deepEqual(posted(p), ['R0000001', 'R0000002', 'R0000002', 'R0000003']);
});

test('a queue survives its page, and another page sends it in its order', async () => {
  const first = page({ replies: [reply(202, record(1, 'generating'))], watched: () => true });
  first.outbox.put(body(1));
  first.outbox.put(body(2), 'queued');
  first.outbox.put(body(3), 'queued');
  await pass();
  const second = page({ storage: first.storage, replies: [reply(200, record(1, 'generating')), reply(200, record(1, 'committed')), reply(200, record(2, 'committed')), reply(200, record(3, 'committed'))] });
  second.outbox.kick();
  await pass(1_000);
  assert.deepEqual(posted(second), []); // the answer before them is asked after
  for (let i = 0; i < 4; i++) await pass(3_000);
  assert.deepEqual(posted(second), ['R0000002', 'R0000003']);
  assert.equal(second.outbox.list().length, 0);
});

test('a page that nobody sees asks how the answer stands that a queue waits for, and only that', async () => {
  const p = page({ replies: [reply(202, record(1, 'generating'))], watched: () => true });
  p.outbox.busy = () => true; // what it left on screen
  p.outbox.put(body(1));
  await pass();
  document.hidden = true;
  p.outbox.look();
  await pass(100_000);
  assert.equal(p.calls.length, 1);
  p.replies.push(reply(200, record(1, 'committed')), reply(200, record(2, 'committed')));
  p.outbox.put(body(2), 'queued');
  await pass(3_000);
  assert.deepEqual(posted(p), ['R0000001', 'R0000002']);
  assert.equal(p.outbox.list().length, 0);
});

test('other conversations do not wait for a queue, and a queue not for them', async () => {
  const p = page({ replies: [reply(202, record(1, 'generating')), reply(202, record(4, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  p.outbox.put(body(2), 'queued');
  p.outbox.put(body(4, 'S7654321'), 'queued');
  await pass();
  assert.deepEqual(posted(p).sort(), ['R0000001', 'R0000004']);
});

test('a direct message passes the queue of its conversation', async () => {
  const p = page({ replies: [reply(202, record(1, 'generating')), reply(202, record(3, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  p.outbox.put(body(2), 'queued');
  await pass();
  p.outbox.put({ ...body(3), kind: 'edit', parentId: 'S1234567.1' });
  await pass();
  assert.deepEqual(posted(p), ['R0000001', 'R0000003']);
});

test('only what was never sent can be taken back', async () => {
  const p = page({ replies: [() => new Promise(() => {})] });
  p.outbox.put(body(1));
  p.outbox.put(body(2), 'queued');
  await pass();
  assert.equal(p.outbox.take('R0000001'), undefined);
  assert.equal(p.outbox.take('R0000009'), undefined);
  assert.deepEqual(p.outbox.take('R0000002').body, body(2));
  assert.deepEqual(ids(p.outbox.list()), ['R0000001']);
});

test('what is preferred is the next, and what is released goes alone', async () => {
  const p = page({ replies: [reply(202, record(1, 'generating')), reply(202, record(4, 'pending'))], watched: () => true });
  p.outbox.put(body(1));
  for (const n of [2, 3, 4]) p.outbox.put(body(n), 'queued');
  await pass();
  p.outbox.prefer('R0000003');
  p.outbox.prefer('R0000004');
  assert.deepEqual(ids(p.outbox.queue('S1234567')), ['R0000004', 'R0000002', 'R0000003']);
  p.outbox.prefer('R0000001');
  assert.deepEqual(ids(p.outbox.queue('S1234567')), ['R0000004', 'R0000002', 'R0000003']);
  p.outbox.release('R0000004');
  p.outbox.release('R0000001');
  await pass(10_000);
  assert.deepEqual(posted(p), ['R0000001', 'R0000004']);
  assert.deepEqual(ids(p.outbox.queue('S1234567')), ['R0000002', 'R0000003']);
});

test('a queue of another account is not sent', async () => {
  const storage = new Memory();
  const p = page({ storage });
  p.outbox.busy = () => true;
  p.outbox.put(body(1), 'queued');
  const other = page({ storage, account: '2' });
  other.outbox.kick();
  await pass(10_000);
  assert.deepEqual(other.calls, []);
  assert.deepEqual(other.outbox.queue('S1234567'), []);
});

test('each try sends the same files, and the page knows what they are', async () => {
  const p = page({ replies: [lost, () => reply(202, record(1, 'pending'))] });
  const files = [{ id: 'a', name: 'a.txt', bytes: 1 }];
  p.outbox.put({ ...body(1), attachments: ['a'] }, 'sending', files);
  await pass();
  assert.deepEqual(p.outbox.get('R0000001').files, files);
  await pass(60_000);
  assert.deepEqual(p.calls.filter((c) => c.method === 'POST').map((c) => c.body), [{ ...body(1), attachments: ['a'] }, { ...body(1), attachments: ['a'] }]);
});
