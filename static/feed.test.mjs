import assert from 'node:assert/strict';
import { mock, test } from 'node:test';

import { Feed } from './feed.js';

const hello = (epoch) => `event: hello\ndata: {"epoch":${epoch}}\n\n`;
const change = (id) => `event: conversation\ndata: {"sessionId":"${id}"}\n\n`;

/** A feed over lines that a test writes and cuts. */
function over(epoch = 1) {
  const lines = [];
  const heard = [];
  let restored = 0;
  let woken;
  const feed = new Feed({
    epoch,
    fetch: async (url, { signal }) => {
      assert.equal(url, '/api/events');
      const line = { signal };
      const body = new ReadableStream({ start: (c) => (line.body = c) });
      signal.addEventListener('abort', () => {
        line.aborted = true;
        try {
          line.body.error(new Error('aborted'));
        } catch {
          // it had ended
        }
      });
      line.write = (text) => line.body.enqueue(new TextEncoder().encode(text));
      lines.push(line);
      woken?.();
      return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
    },
    changed: (sessions) => {
      heard.push(sessions);
      woken?.();
    },
    restored: () => {
      restored++;
      woken?.();
    },
  });
  const until = async (holds) => {
    while (!holds()) await new Promise((resume) => (woken = resume));
  };
  return { feed, lines, heard, until, restored: () => restored };
}

test('a feed says what changed, and that anything may have when it begins', async () => {
  const { feed, lines, heard, until } = over();
  feed.start();
  feed.start(); // it runs already
  await until(() => lines.length === 1);
  lines[0].write(hello(1) + change('S1'));
  await until(() => heard.length === 1);
  lines[0].write(': still here\n\n');
  lines[0].write(change('S2'));
  await until(() => heard.length === 2);
  assert.deepEqual(heard, [['', 'S1'], ['S2']]);
  feed.stop();
  assert.equal(lines[0].aborted, true);
  assert.equal(lines.length, 1);
});

test('a line that ends is joined again, one that was stopped is not', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const { feed, lines, heard, until } = over();
    feed.start();
    await until(() => lines.length === 1);
    lines[0].write(hello(1));
    await until(() => heard.length === 1);
    lines[0].body.close();
    while (lines.length < 2) {
      await new Promise((resume) => setImmediate(resume));
      mock.timers.tick(1000);
    }
    lines[1].write(hello(1));
    await until(() => heard.length === 2);
    feed.stop();
    for (let n = 0; n < 20; n++) {
      await new Promise((resume) => setImmediate(resume));
      mock.timers.tick(10_000);
    }
    assert.equal(lines.length, 2);
  } finally {
    mock.timers.reset();
  }
});

test('a line that is silent for long is left', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const { feed, lines, until } = over();
    feed.start();
    await until(() => lines.length === 1);
    await new Promise((resume) => setImmediate(resume));
    mock.timers.tick(46_000);
    assert.equal(lines[0].aborted, true);
    feed.stop();
  } finally {
    mock.timers.reset();
  }
});

test('another epoch is another database', async () => {
  const { feed, lines, heard, until, restored } = over();
  feed.start();
  await until(() => lines.length === 1);
  lines[0].write(hello(1));
  await until(() => heard.length === 1);
  feed.stop();
  feed.start();
  await until(() => lines.length === 2);
  lines[1].write(hello(1));
  await until(() => heard.length === 2);
  assert.equal(restored(), 0);
  lines[1].write(hello(2));
  await until(() => restored() === 1);
  feed.stop();
});

test('a page that was made before a restore hears of it with the first word', async () => {
  const { feed, lines, until, restored } = over(1);
  feed.start();
  await until(() => lines.length === 1);
  lines[0].write(hello(2));
  await until(() => restored() === 1);
  feed.stop();
});
