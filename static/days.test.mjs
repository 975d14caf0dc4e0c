import assert from 'node:assert/strict';
import { test } from 'node:test';

import { dayLabel, dayOf } from './days.js';

/** Runs with another time zone. */
function inZone(zone, run) {
  const before = process.env.TZ;
  process.env.TZ = zone;
  try {
    run();
  } finally {
    process.env.TZ = before;
    if (before === undefined) delete process.env.TZ;
  }
}

test('days begin at midnight of the reader', () => {
  const now = Date.parse('2026-03-10T03:00:00Z');
  const cases = [
    // in Shanghai it is eleven in the morning of the 10th, in Los Angeles eight in the evening of the 9th
    ['2026-03-09T16:00:00Z', 'today', 'today'],
    ['2026-03-09T15:59:59Z', 'yesterday', 'today'],
    ['2026-03-09T06:59:59Z', 'yesterday', 'yesterday'],
    ['2026-03-11T12:00:00Z', 'today', 'today'], // from a clock that runs ahead
  ];
  for (const [at, shanghai, angeles] of cases) {
    inZone('Asia/Shanghai', () => assert.equal(dayOf(Date.parse(at), now), shanghai, `${at} in Shanghai`));
    inZone('America/Los_Angeles', () => assert.equal(dayOf(Date.parse(at), now), angeles, `${at} in Los Angeles`));
  }
});

test('a day has 23 hours or 25 when clocks change', () => {
  inZone('America/Los_Angeles', () => {
    for (const [now, at, want] of [
      ['2026-03-08T12:00:00-07:00', '2026-03-07T23:59:00-08:00', 'yesterday'],
      ['2026-03-09T00:30:00-07:00', '2026-03-08T00:30:00-08:00', 'yesterday'],
      ['2026-03-15T00:30:00-07:00', '2026-03-08T00:30:00-08:00', 'week'],
      ['2026-03-16T00:30:00-07:00', '2026-03-08T00:30:00-08:00', 'month'],
      ['2026-11-02T00:30:00-08:00', '2026-11-01T00:30:00-07:00', 'yesterday'],
      ['2026-11-01T23:30:00-08:00', '2026-11-01T00:30:00-07:00', 'today'],
    ]) assert.equal(dayOf(Date.parse(at), Date.parse(now)), want, `${at} at ${now}`);
  });
});

test('what is older stands under its month', () => {
  inZone('UTC', () => {
    const now = Date.parse('2026-03-31T12:00:00Z');
    for (const [at, want] of [
      ['2026-03-24T00:00:00Z', 'week'],
      ['2026-03-23T23:59:59Z', 'month'],
      ['2026-03-01T00:00:00Z', 'month'],
      ['2026-02-28T23:59:59Z', '2026-02'],
      ['2025-12-31T23:59:59Z', '2025-12'],
    ]) assert.equal(dayOf(Date.parse(at), now), want, at);
  });
});

test('headings are in the language of the page', () => {
  const t = (key) => key;
  assert.equal(dayLabel('2026-02', t, 'en'), 'February 2026');
  assert.equal(dayLabel('2026-02', t, 'zh-CN'), '2026年2月');
  assert.equal(dayLabel('pinned', t, 'en'), 'js.day.pinned');
  assert.equal(dayLabel('found', t, 'en'), '');
});
