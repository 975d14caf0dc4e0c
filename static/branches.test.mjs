import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Tails, seqOf } from './branches.js';

class Memory {
  map = new Map();
  getItem(key) {
    return this.map.get(key) ?? null;
  }
  setItem(key, value) {
    if (this.full) throw new Error('full');
    this.map.set(key, value);
  }
}

test('a message id names its number', () => {
  assert.equal(seqOf('01J5K8Z3N4V6W8X0Y2A4C6E8G0.17'), 17);
  assert.equal(seqOf('a.b.3'), 3);
});

test('E10: the tail of each branch is remembered', () => {
  const storage = new Memory();
  const tails = new Tails(storage, 'S1');
  assert.equal(tails.of(2), 2, 'a branch that was never left has its newest end');
  tails.leave([2, 4], 9);
  tails.leave([3], 12);
  const later = new Tails(storage, 'S1'); // after a reload
  assert.deepEqual([later.of(2), later.of(4), later.of(3)], [9, 9, 12]);
  assert.equal(new Tails(storage, 'S2').of(2), 2, 'each conversation has its own');
});

test('a memory that is damaged or full loses nothing but itself', () => {
  const storage = new Memory();
  storage.setItem('semel.tails.S1', '{broken');
  const tails = new Tails(storage, 'S1');
  assert.equal(tails.of(5), 5);
  storage.full = true;
  tails.leave([5], 8);
  assert.equal(tails.of(5), 5);
});

test('the memory has an end', () => {
  const tails = new Tails(new Memory(), 'S1');
  for (let i = 1; i <= 2000; i++) tails.leave([i], i + 1);
  assert.ok(tails.storage.getItem('semel.tails.S1').length < 10_000);
  assert.equal(tails.of(2000), 2001);
});
