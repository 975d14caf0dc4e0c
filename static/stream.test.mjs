import assert from 'node:assert/strict';
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
  const { heard } = await listen([[['end', '1.9', { requestId: 'OTHER', state: 'committed' }], end]], { attempt: 1 });
  assert.deepEqual(heard, [['end', 'committed']]);
});

test('a failure and a missing request end the stream', async () => {
  const failed = await listen([[['error', '1.9', { code: 'line_lost', state: 'failed' }]]], { attempt: 1 });
  assert.deepEqual(failed.heard, [['failed', 'line_lost']]);
  const gone = await listen([new Response(JSON.stringify({ type: 'urn:semel:problem:not_found', code: 'not_found' }), { status: 404 })]);
  assert.deepEqual(gone.heard, [['lost']]);
});
