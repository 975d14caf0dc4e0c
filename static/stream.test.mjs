import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Decoder, Stream } from './stream.js';

const text = ': hello\n\nid: 1.0\nevent: accepted\ndata: {"a":1}\n\r\ndata: two\r\ndata:lines\r\n\r\nevent: none\n\nid: 1.5\rdata: x\r\r\n';
const want = [
  { event: 'accepted', id: '1.0', data: '{"a":1}' },
  { event: 'message', id: '1.0', data: 'two\nlines' },
  { event: 'message', id: '1.5', data: 'x' },
];

test('events are the same however they are cut', () => {
  for (let size = 1; size <= text.length; size++) {
    const decoder = new Decoder();
    const got = [];
    for (let i = 0; i < text.length; i += size) got.push(...decoder.push(text.slice(i, i + size)));
    assert.deepEqual(got, want, `pieces of ${size}`);
  }
});

/** Joins a stream whose connections carry these lists of events; returns what was heard. */
async function listen(connections, { attempt = 0 } = {}) {
  const heard = [];
  const urls = [];
  let done;
  const over = new Promise((resolve) => (done = resolve));
  const listener = {
    joined: () => heard.push(['joined']),
    attempt: (n) => heard.push(['attempt', n]),
    state: (s) => heard.push(['state', s]),
    block: (n, html) => heard.push(['block', n, html]),
    reasoning: (t) => heard.push(['reasoning', t]),
    end: (r) => done(heard.push(['end', r.state])),
    failed: (p) => done(heard.push(['failed', p.code])),
    lost: () => done(heard.push(['lost'])),
  };
  const fetch = async (url) => {
    urls.push(url);
    const next = connections.shift();
    if (!next) throw new TypeError('network');
    if (next instanceof Response) return next;
    const body = next.map(([event, id, data]) => `event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`).join('');
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
  };
  const stream = new Stream({ requestId: 'R1234567', sessionId: 'S1234567', attempt, listener, fetch });
  await over;
  stream.close();
  return { heard, urls };
}

const end = ['end', '1.9', { requestId: 'R1234567', state: 'committed' }];

test('a stream that closes without an end is joined again', async () => {
  const { heard, urls } = await listen([
    [['accepted', '1.0', { attempt: 1 }], ['delta', '1.3', { block: 0, html: 'a' }]],
    [['accepted', '1.0', { attempt: 1 }], ['delta', '1.5', { block: 0, html: 'ab' }], end],
  ]);
  assert.equal(urls.length, 2);
  assert.equal(urls[0], '/api/chat/stream/R1234567?sessionId=S1234567&as=html');
  assert.deepEqual(heard, [['attempt', 1], ['joined'], ['block', 0, 'a'], ['joined'], ['block', 0, 'ab'], ['end', 'committed']]);
});

test('a dead line and an answer that is not ours are both silence', async () => {
  const { heard } = await listen([
    new Response('<h1>Sign in to the wireless network</h1>', { status: 200, headers: { 'Content-Type': 'text/html' } }),
    new Response('', { status: 502 }),
    [end],
  ], { attempt: 1 });
  assert.deepEqual(heard, [['end', 'committed']]);
});

test('another attempt is told before its text, and an older one is not heard', async () => {
  const { heard } = await listen([
    [
      ['accepted', '1.0', { attempt: 1 }],
      ['delta', '1.3', { block: 0, html: 'old' }],
      ['attempt', '2.0', { attempt: 2, reason: 'retry' }],
      ['delta', '1.9', { block: 0, html: 'older' }],
      ['delta', '2.3', { block: 0, html: 'new' }],
      end,
    ],
  ], { attempt: 1 });
  assert.deepEqual(heard, [['joined'], ['block', 0, 'old'], ['attempt', 2], ['block', 0, 'new'], ['end', 'committed']]);
});

test('the end of another request is not ours', async () => {
  const { heard } = await listen([[['end', '1.9', { requestId: 'OTHER', state: 'acknowledged' }], end]], { attempt: 1 });
  assert.deepEqual(heard, [['end', 'committed']]);
});

test('a failure and a missing request end the stream', async () => {
  const failed = await listen([[['error', '1.9', { code: 'line_lost', state: 'failed' }]]], { attempt: 1 });
  assert.deepEqual(failed.heard, [['failed', 'line_lost']]);
  const gone = await listen([new Response(JSON.stringify({ type: 'urn:semel:problem:not_found', code: 'not_found' }), { status: 404 })]);
  assert.deepEqual(gone.heard, [['lost']]);
});

/** Joins a stream of lines that are written to by hand, in a time that is moved by hand. */
function byHand(t) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const heard = [];
  const lines = [];
  const fetch = async (url, { signal }) => {
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    lines.push(writer);
    signal.addEventListener('abort', () => writer.abort().catch(() => {}));
    return new Response(readable, { headers: { 'Content-Type': 'text/event-stream' } });
  };
  const listener = { attempt: () => {}, joined: () => heard.push('joined'), block: (n, html) => heard.push(html), lost: () => heard.push('lost'), failed: () => heard.push('failed') };
  const stream = new Stream({ requestId: 'R1234567', sessionId: 'S1234567', attempt: 0, listener, fetch });
  const settle = async () => {
    for (let i = 0; i < 20; i++) await new Promise((resume) => setImmediate(resume));
  };
  const says = async (text) => {
    await settle();
    await lines.at(-1).write(new TextEncoder().encode(text));
    await settle();
  };
  const pass = async (ms) => {
    t.mock.timers.tick(ms);
    await settle();
  };
  return { heard, lines, says, pass, close: () => stream.close() };
}

test('B11: a line that says only that it is there is no lost one', async (t) => {
  const { heard, lines, says, pass, close } = byHand(t);
  await says('event: accepted\nid: 1.0\ndata: {"attempt":1}\n\n');
  for (let s = 0; s < 180; s += 15) {
    await pass(15_000);
    await says(': still here\n\n');
  }
  await says('event: delta\nid: 1.5\ndata: {"block":0,"html":"late"}\n\n');
  assert.deepEqual([heard, lines.length], [['joined', 'late'], 1]);
  close();
});

test('a line that is silent for long is left, before its first word and after', async (t) => {
  const { heard, lines, says, pass, close } = byHand(t);
  await pass(0);
  await pass(46_000);
  await pass(1000);
  assert.equal(lines.length, 2);
  await says('event: accepted\nid: 1.0\ndata: {"attempt":1}\n\n');
  await pass(44_000);
  assert.equal(lines.length, 2);
  await pass(2000);
  await pass(1000);
  assert.equal(lines.length, 3);
  await says('event: accepted\nid: 1.0\ndata: {"attempt":1}\n\n');
  assert.deepEqual(heard, ['joined', 'joined']);
  close();
});

test('B15: no module looks at the words of an error', () => {
  const here = new URL('.', import.meta.url);
  const looks = /\b(?:error|e|err|reason)\.(?:message|name)\b|Load failed|Failed to fetch|NetworkError/;
  const modules = readdirSync(here).filter((name) => name.endsWith('.js'));
  const guilty = modules.filter((name) => looks.test(readFileSync(new URL(name, here), 'utf8')));
  assert.ok(modules.length > 10 && looks.test('if (error.message === "Load failed")'));
  assert.deepEqual(guilty, []);
});
