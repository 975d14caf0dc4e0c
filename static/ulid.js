// A request id is minted when a person presses Send, and names that one intent
// for ever.

const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/**
 * Mints a ULID. It needs crypto.getRandomValues only: crypto.randomUUID does not
 * exist on plain http. It throws where there is no source of randomness; the
 * caller shows that, because a message without an id must not leave.
 * @param {number} time milliseconds, by the server's clock
 * @returns {string} 26 characters of Crockford's base 32
 */
export function ulid(time) {
  if (!(time >= 0 && time < 2 ** 48)) throw new RangeError(`no time for an id: ${time}`);
  const random = crypto.getRandomValues(new Uint8Array(16));
  let id = '';
  for (let i = 0, t = Math.floor(time); i < 10; i++, t = Math.floor(t / 32)) id = alphabet[t % 32] + id;
  for (const byte of random) id += alphabet[byte & 31];
  return id;
}

/** @param {string} id @returns {number} when it was minted, NaN where it is no ULID */
export function timeOf(id) {
  if (!/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(id)) return NaN;
  return [...id.slice(0, 10)].reduce((time, c) => time * 32 + alphabet.indexOf(c), 0);
}
