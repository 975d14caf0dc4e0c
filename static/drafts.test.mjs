import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Drafts, isAbout, tidy } from './drafts.js';

class Memory {
  #map = new Map();
  room = Infinity; // characters
  get length() { return this.#map.size; }
  key(i) { return [...this.#map.keys()][i] ?? null; }
  getItem(key) { return this.#map.get(key) ?? null; }
  removeItem(key) { this.#map.delete(key); }
  setItem(key, value) {
    let used = key.length + value.length;
    for (const [k, v] of this.#map) if (k !== key) used += k.length + v.length;
    if (used > this.room) throw new DOMException('full', 'QuotaExceededError');
    this.#map.set(key, value);
  }
}

// Drafts with a clock that the test moves.
function drafts() {
  const d = { storage: new Memory(), now: 1_000_000 };
  d.drafts = new Drafts(d.storage, () => d.now);
  return d;
}

const entry = (sessionId, content, createdAt) => ({ sessionId, createdAt, body: { content } });

test('a draft is kept per conversation, as it was typed, until it is empty', () => {
  const { drafts: d, storage } = drafts();
  d.set('A', ' two\nlines ');
  d.set('B', 'other');
  assert.equal(d.get('A'), ' two\nlines ');
  assert.equal(d.get('B'), 'other');
  d.set('A', '');
  assert.equal(d.get('A'), '');
  assert.equal(storage.length, 1);
  assert.equal(d.get('B'), 'other');
});

test('tabs with different conversations never write the same value', () => {
  const { storage } = drafts();
  const [one, two] = [new Drafts(storage), new Drafts(storage)];
  one.set('A', 'a1');
  two.set('B', 'b1');
  one.set('A', 'a2');
  assert.deepEqual([two.get('A'), one.get('B')], ['a2', 'b1']);
  assert.equal(isAbout({ key: storage.key(0) }, 'A'), true);
  assert.equal(isAbout({ key: storage.key(1) }, 'A'), false);
});

test('what is damaged or not ours is no draft', () => {
  const { drafts: d, storage } = drafts();
  for (const value of ['{', 'null', '7', '{"v":2,"text":"x"}', '{"v":1,"text":7}', '[]']) {
    storage.setItem('semel.draft.A', value);
    assert.equal(d.get('A'), '', value);
    assert.equal(d.orphan('1'), '', value);
    d.sent(entry('A', 'x', 2_000_000));
    d.known('A');
    d.hold('A', true);
    assert.equal(storage.getItem('semel.draft.A'), value);
  }
});

test('a draft that is in the outbox is dropped: the page died in the middle of a send', () => {
  const { drafts: d } = drafts();
  d.set('A', '\n words \n');
  d.sent(entry('A', ' words', 1_000_000));
  assert.equal(d.get('A'), '');
});

test('the same words typed after a send stay, and so do other words', () => {
  const d = drafts();
  d.drafts.set('A', 'words');
  d.drafts.sent(entry('A', 'words', d.now - 1));
  assert.equal(d.drafts.get('A'), 'words');
  d.drafts.sent(entry('A', 'other', d.now + 1));
  d.drafts.sent(entry('B', 'words', d.now + 1));
  assert.equal(d.drafts.get('A'), 'words');
});

test('a text that was not sent goes above what was typed since, once', () => {
  const { drafts: d } = drafts();
  d.giveBack('A', 'sent');
  assert.equal(d.get('A'), 'sent');
  d.giveBack('A', 'sent');
  assert.equal(d.get('A'), 'sent');
  d.set('A', 'typed');
  d.giveBack('A', 'sent');
  assert.equal(d.get('A'), 'sent\n\ntyped');
  d.giveBack('A', '');
  assert.equal(d.get('A'), 'sent\n\ntyped');
});

test('the oldest drafts go when there are many', () => {
  const d = drafts();
  for (let i = 0; i < 60; i++) {
    d.now++;
    d.drafts.set(`S${i}`, `text ${i}`);
  }
  assert.equal(d.storage.length, 50);
  assert.equal(d.drafts.get('S9'), '');
  assert.equal(d.drafts.get('S10'), 'text 10');
  d.now++;
  d.drafts.set('long', 'x'.repeat(999_990));
  assert.equal(d.drafts.get('S59'), 'text 59');
  assert.equal(d.drafts.get('S58'), '');
});

test('a full storage drops the oldest drafts before it loses the newest', () => {
  const d = drafts();
  d.storage.setItem('semel.outbox.R', 'x'.repeat(500));
  for (const key of ['A', 'B', 'C']) {
    d.now++;
    d.drafts.set(key, key.repeat(100));
  }
  d.storage.room = 1000;
  d.now++;
  d.drafts.set('D', 'D'.repeat(100));
  assert.equal(d.drafts.get('A'), '');
  assert.equal(d.drafts.get('D').length, 100);
  assert.equal(d.storage.getItem('semel.outbox.R').length, 500);
  assert.throws(() => d.drafts.set('D', 'D'.repeat(2000)), /full/);
  assert.equal(d.drafts.get('D').length, 100, 'what was kept before still is');
});

test('a new conversation is taken up when its tab was left or died, by its own account only', () => {
  const d = drafts();
  d.drafts.set('A', 'half', '1');
  d.drafts.set('known', 'half');
  assert.equal(d.drafts.orphan('1'), '', 'it is open');
  d.drafts.hold('A', false);
  assert.equal(d.drafts.orphan('1'), 'A', 'it was left');
  assert.equal(d.drafts.orphan('2'), '');
  d.drafts.hold('A', true);
  assert.equal(d.drafts.orphan('1'), '');
  d.now += 11 * 60_000;
  assert.equal(d.drafts.orphan('1'), 'A', 'its tab gave no sign of life');
  assert.equal(d.drafts.isFresh('A'), true);
  d.drafts.known('A');
  assert.equal(d.drafts.orphan('1'), '', 'the server has it');
  assert.equal(d.drafts.isFresh('A'), false);
  assert.equal(d.drafts.get('A'), 'half');
});

test('what of a text is sent', () => {
  assert.equal(tidy('\n  \n  code\n    more \n\n'), '  code\n    more');
  assert.equal(tidy(' \n\t'), '');
});

test('files beside a text are kept with it, alone too, and go with it', () => {
  const { drafts: d } = drafts();
  const a = { id: 'a', name: 'a.txt', bytes: 1 };
  const pasted = { name: 'pasted.txt', bytes: 3, text: 'xyz' };
  d.set('S1', '', undefined, [a, pasted]);
  assert.deepEqual(d.files('S1'), [a, pasted]);
  assert.equal(d.get('S1'), '');
  d.set('S1', 'text');
  assert.deepEqual(d.files('S1'), []);
  d.set('S1', '');
  assert.equal(d.get('S1'), '');
  assert.deepEqual(d.files('S2'), []);
});

test('a question that is given back brings its files, once', () => {
  const { drafts: d } = drafts();
  const [a, b] = ['a', 'b'].map((id) => ({ id, name: `${id}.txt`, bytes: 1 }));
  d.set('S1', 'typed', undefined, [a]);
  d.giveBack('S1', 'sent', [a, b]);
  assert.equal(d.get('S1'), 'sent\n\ntyped');
  assert.deepEqual(d.files('S1'), [a, b]);
  d.giveBack('S2', '', [b]);
  assert.deepEqual(d.files('S2'), [b]);
});

test('a draft whose question is on its way goes only when its files are the same', () => {
  const { drafts: d } = drafts();
  const a = { id: 'a', name: 'a.txt', bytes: 1 };
  const sent = (attachments) => d.sent({ sessionId: 'S1', createdAt: 2_000_000, body: { content: 'text', attachments } });
  d.set('S1', 'text', undefined, [a]);
  sent(undefined);
  sent(['b']);
  assert.equal(d.get('S1'), 'text');
  sent(['a']);
  assert.equal(d.get('S1'), '');
});
