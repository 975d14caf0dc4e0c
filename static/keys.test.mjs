import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Composition } from './keys.js';

// A field that only takes events, and events with the times that browsers give.
const field = () => new EventTarget();
const at = (name, timeStamp) => Object.defineProperty(new Event(name), 'timeStamp', { value: timeStamp });
const enter = (over = {}) => ({ key: 'Enter', keyCode: 13, isComposing: false, shiftKey: false, altKey: false, ctrlKey: false, metaKey: false, timeStamp: 10_000, ...over });

test('Enter sends, Shift+Enter and Alt+Enter do not', () => {
  const c = new Composition(field());
  assert.equal(c.sends(enter(), false), true);
  assert.equal(c.sends(enter({ shiftKey: true }), false), false);
  assert.equal(c.sends(enter({ altKey: true }), false), false);
  assert.equal(c.sends(enter({ key: 'a', keyCode: 65 }), false), false);
});

test('on a touch keyboard Enter breaks the line, with Ctrl or Cmd it sends', () => {
  const c = new Composition(field());
  assert.equal(c.sends(enter(), true), false);
  assert.equal(c.sends(enter({ ctrlKey: true }), true), true);
  assert.equal(c.sends(enter({ metaKey: true }), true), true);
});

test('Chrome: the Enter that commits comes before compositionend', () => {
  const f = field();
  const c = new Composition(f);
  f.dispatchEvent(at('compositionstart', 100));
  assert.equal(c.sends(enter({ isComposing: true, keyCode: 229, timeStamp: 200 }), false), false);
  f.dispatchEvent(at('compositionend', 201));
  assert.equal(c.sends(enter({ timeStamp: 900 }), false), true);
});

test('Safari: the Enter that commits comes after compositionend, with key code 229', () => {
  const f = field();
  const c = new Composition(f);
  f.dispatchEvent(at('compositionend', 200));
  assert.equal(c.sends(enter({ keyCode: 229, timeStamp: 205 }), false), false);
});

test('embedded WebKit: an ordinary Enter right after compositionend commits, a later one sends', () => {
  const f = field();
  const c = new Composition(f);
  f.dispatchEvent(at('compositionend', 200));
  assert.equal(c.sends(enter({ timeStamp: 205 }), false), false);
  assert.equal(c.sends(enter({ timeStamp: 600 }), false), true);
});

test('Escape stops, unless it ends a composition', () => {
  const c = new Composition(field());
  assert.equal(c.stops(enter({ key: 'Escape', keyCode: 27 })), true);
  assert.equal(c.stops(enter({ key: 'Escape', keyCode: 229, isComposing: true })), false);
});
