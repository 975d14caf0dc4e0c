import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { beforeEach, test } from 'node:test';

import { Composition, chooseEnter, enterBreaks, onEnterChosen, sendingKey } from './keys.js';

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

test('where Enter breaks the line it sends with Ctrl or Cmd', () => {
  const c = new Composition(field());
  assert.equal(c.sends(enter(), true), false);
  assert.equal(c.sends(enter({ ctrlKey: true }), true), true);
  assert.equal(c.sends(enter({ metaKey: true }), true), true);
  assert.equal(c.sends(enter({ ctrlKey: true, shiftKey: true }), true), false);
});

// What browsers deliver, in their order, with milliseconds: [time, event, of a key
// press: its key, keyCode and isComposing]. sends names the times at which the key
// is a wish to send, echoes those at which it must do nothing at all.
const recorded = [
  {
    name: 'D2, Chrome on macOS, pinyin: Enter commits the letters',
    events: [
      [0, 'keydown', 'n', 229, false], [1, 'compositionstart'], [3, 'compositionupdate'], [90, 'keydown', 'i', 229, true], [92, 'compositionupdate'],
      [400, 'keydown', 'Enter', 229, true], [402, 'compositionend'], [470, 'keyup', 'Enter', 13, false],
      [1200, 'keydown', 'Enter', 13, false],
    ],
    sends: [1200],
  },
  {
    name: 'D2, Chrome on Windows, pinyin: the key is called Process',
    events: [
      [0, 'keydown', 'Process', 229, false], [1, 'compositionstart'], [80, 'keydown', 'Process', 229, true],
      [300, 'keydown', 'Process', 229, true], [304, 'compositionend'], [900, 'keydown', 'Enter', 13, false],
    ],
    sends: [900],
  },
  {
    name: 'D2, Firefox, pinyin: Enter with key code 229 inside the composition',
    events: [
      [0, 'keydown', 'Process', 229, true], [2, 'compositionstart'], [250, 'keydown', 'Process', 229, true], [252, 'keydown', 'Enter', 229, true], [253, 'compositionend'],
      [254, 'keyup', 'Enter', 13, false], [700, 'keydown', 'Enter', 13, false],
    ],
    sends: [700],
  },
  {
    name: 'D1, Safari, pinyin: the composition ends before the keydown of its Enter',
    events: [
      [0, 'compositionstart'], [1, 'keydown', 'n', 229, true], [95, 'keydown', 'i', 229, true], [300, 'compositionend'], [301, 'keydown', 'Enter', 229, false],
      [360, 'keyup', 'Enter', 13, false], [1100, 'keydown', 'Enter', 13, false],
    ],
    sends: [1100],
  },
  {
    name: 'D1, Safari on a slow machine: its keydown comes late, the key code still tells',
    events: [[0, 'compositionstart'], [300, 'compositionend'], [380, 'keydown', 'Enter', 229, false], [900, 'keydown', 'Enter', 13, false]],
    sends: [900],
  },
  {
    name: 'D4, embedded WebKit: an ordinary Enter 5 ms after the end, and one 400 ms after it',
    events: [[0, 'compositionstart'], [200, 'compositionend'], [205, 'keydown', 'Enter', 13, false], [600, 'keydown', 'Enter', 13, false]],
    sends: [600],
    echoes: [205],
  },
  {
    name: 'Chrome on macOS, hangul: the Enter that ends a syllable comes twice',
    events: [
      [0, 'compositionstart'], [150, 'keydown', 'Enter', 229, true], [152, 'compositionend'], [153, 'keydown', 'Enter', 13, false],
      [900, 'keydown', 'Enter', 13, false],
    ],
    sends: [900],
    echoes: [153],
  },
  {
    name: 'Linux, an input method that keeps the key code: only isComposing tells',
    events: [[0, 'compositionstart'], [300, 'keydown', 'Enter', 13, true], [301, 'compositionend'], [800, 'keydown', 'Enter', 13, false]],
    sends: [800],
  },
  {
    name: 'two compositions, one after the other',
    events: [
      [0, 'compositionstart'], [100, 'compositionend'], [400, 'compositionstart'], [450, 'keydown', 'Enter', 229, true], [451, 'compositionend'],
      [455, 'keydown', 'Enter', 13, false], [800, 'keydown', 'Enter', 13, false],
    ],
    sends: [800],
    echoes: [455],
  },
];

for (const { name, events, sends, echoes = [] } of recorded) {
  test(name, () => {
    const f = field();
    const c = new Composition(f);
    const got = { sends: [], echoes: [] };
    for (const [time, type, key, keyCode, isComposing] of events) {
      if (type !== 'keydown') {
        f.dispatchEvent(at(type, time));
        continue;
      }
      const press = enter({ key, keyCode, isComposing, timeStamp: time });
      if (c.sends(press, false)) got.sends.push(time);
      if (c.echoes(press)) got.echoes.push(time);
      assert.equal(c.sends(press, true), false, `at ${time}, where Enter breaks the line`);
    }
    assert.deepEqual(got, { sends, echoes });
  });
}

test('Escape stops, unless it ends a composition', () => {
  const f = field();
  const c = new Composition(f);
  assert.equal(c.stops(enter({ key: 'Escape', keyCode: 27 })), true);
  assert.equal(c.stops(enter({ key: 'Escape', keyCode: 229, isComposing: true })), false);
  f.dispatchEvent(at('compositionend', 9_999));
  assert.equal(c.stops(enter({ key: 'Escape', keyCode: 27 })), false);
});

// A browser with a pointer, a platform and a storage, as far as these look at them.
let touch, listeners;
beforeEach(() => {
  touch = false;
  listeners = [];
  const map = new Map();
  globalThis.matchMedia = () => ({ matches: touch });
  globalThis.addEventListener = (_, f) => listeners.push(f);
  globalThis.localStorage = { getItem: (k) => map.get(k) ?? null, setItem: (k, v) => map.set(k, v), removeItem: (k) => map.delete(k) };
});

test('Enter sends until a person chooses otherwise, which is remembered; on touch it breaks the line', () => {
  assert.equal(enterBreaks(), false);
  chooseEnter(true);
  assert.equal(enterBreaks(), true);
  chooseEnter(false);
  assert.equal(enterBreaks(), false);
  touch = true;
  assert.equal(enterBreaks(), true);
});

test('a choice in another tab is heard, other changes are not', () => {
  let n = 0;
  onEnterChosen(() => n++);
  for (const key of ['semel.enter', null, 'semel.draft.A']) listeners[0]({ key });
  assert.equal(n, 2);
});

test('the key that sends has the name it has on this keyboard', () => {
  const as = (platform) => {
    Object.defineProperty(globalThis, 'navigator', { value: { platform }, configurable: true });
    return sendingKey();
  };
  assert.deepEqual(['MacIntel', 'iPad', 'Win32', 'Linux x86_64'].map(as), ['⌘', '⌘', 'Ctrl', 'Ctrl']);
});

test('D7: no other module looks at Enter', () => {
  const here = new URL('.', import.meta.url);
  const looks = /['"`](?:Numpad)?Enter['"`]|\bkeyCode\b|\bcharCode\b|\.which\b/;
  const modules = readdirSync(here).filter((name) => name.endsWith('.js'));
  const guilty = modules.filter((name) => name !== 'keys.js' && looks.test(readFileSync(new URL(name, here), 'utf8')));
  assert.ok(modules.length > 10 && looks.test(readFileSync(new URL('keys.js', here), 'utf8')));
  assert.deepEqual(guilty, []);
});
