// The server's clock, as far as this page knows it. Ids carry a time, and a
// server refuses one that lies in its future: a browser whose clock is wrong must
// still be able to send.

let offset = 0;

/**
 * Sets the clock by a time the server just named.
 * @param {number} serverTime milliseconds
 */
export function setClock(serverTime) {
  if (Number.isFinite(serverTime)) offset = serverTime - Date.now();
}

/**
 * Corrects the clock by the Date header of an answer. It has whole seconds and
 * is as old as its way here, so small differences say nothing.
 * @param {Response} response
 */
export function readClock(response) {
  const time = Date.parse(response.headers.get('Date') ?? '');
  if (Math.abs(time - serverNow()) > 3000) setClock(time);
}

/** @returns {number} the server's time in milliseconds */
export function serverNow() {
  return Date.now() + offset;
}
