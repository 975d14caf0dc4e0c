// What a person chose, as the server keeps it for all their browsers. The choice of
// the sending key is also in this browser, so that its open tabs hear of it.

import { chooseEnter } from './keys.js';

const seen = 'semel.enter.server'; // what the server said last

/** Takes over what was chosen in another browser since this one last looked. */
export function adopt() {
  const { sendKey } = document.body.dataset;
  if (!sendKey || localStorage.getItem(seen) === sendKey) return; // a choice of this browser may be on its way
  try {
    localStorage.setItem(seen, sendKey);
    chooseEnter(sendKey === 'mod_enter');
  } catch {
    // no room: the next page tries again
  }
}

/**
 * Stores a choice for all browsers.
 * @param {Record<string, string>} patch
 * @returns {Promise<Response>}
 */
export function remember(patch) {
  return fetch('/api/settings', {
    method: 'PATCH',
    keepalive: true, // the page may be left at once
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(patch),
  });
}
