import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readClock, serverNow, setClock } from './clock.js';
import { timeOf, ulid } from './ulid.js';

test('an id is a ULID of the time it was minted', () => {
  assert.match(ulid(Date.now()), /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
  assert.equal(ulid(1469918176385).slice(0, 10), '01ARYZ6S41'); // the example of the ULID specification
  assert.equal(ulid(0).slice(0, 10), '0000000000');
  assert.equal(ulid(2 ** 48 - 1).slice(0, 10), '7ZZZZZZZZZ');
});

test('a time that fits no id is refused, not sent', () => {
  for (const time of [-1, 2 ** 48, NaN, Infinity]) assert.throws(() => ulid(time), RangeError);
});

test('ten thousand ids of one millisecond differ', () => {
  assert.equal(new Set(Array.from({ length: 10_000 }, () => ulid(1))).size, 10_000);
});

test('an id needs getRandomValues only, and says so when there is none', () => {
  const { crypto } = globalThis;
  const values = { getRandomValues: (a) => crypto.getRandomValues(a) };
  Object.defineProperty(globalThis, 'crypto', { value: values, configurable: true });
  try {
    assert.equal(ulid(1).length, 26);
    delete values.getRandomValues;
    assert.throws(() => ulid(1));
  } finally {
    Object.defineProperty(globalThis, 'crypto', { value: crypto, configurable: true });
  }
});

test('a wrong clock of the device does not reach the id', () => {
  const server = Date.now() + 3_600_000;
  setClock(server);
  assert.ok(Math.abs(serverNow() - server) < 1000);
  readClock(new Response('', { headers: { Date: new Date(server + 2000).toUTCString() } })); // within what a Date header can say
  assert.ok(Math.abs(serverNow() - server) < 1000);
  readClock(new Response('', { headers: { Date: new Date(server - 86_400_000).toUTCString() } })); // the device's clock was set meanwhile
  assert.ok(Math.abs(serverNow() - (server - 86_400_000)) < 2000);
  readClock(new Response(''));
  setClock(NaN);
  assert.ok(Math.abs(serverNow() - (server - 86_400_000)) < 2000);
  setClock(Date.now());
});

test('an id tells when it was minted, another does not', () => {
  assert.equal(timeOf(ulid(1_700_000_000_123)), 1_700_000_000_123);
  assert.ok(Number.isNaN(timeOf('order-2024-0001')));
  assert.ok(Number.isNaN(timeOf('f81d4fae-7dec-11d0-a765-00a0c91e6bf6')));
});
