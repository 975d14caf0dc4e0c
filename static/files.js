// Files as they look: how large they are said to be, and in a question what it
// carries. What is made here is what the server renders.

import { clone } from './log.js';

/**
 * A file that a question carries, as the server says it is.
 * @typedef {object} Attached
 * @property {string} [id] none while the server has not got it
 * @property {string} name
 * @property {string} [mediaType]
 * @property {number} bytes
 * @property {number} [width]
 * @property {number} [height]
 * @property {string} [text] of one that was pasted and that the server has not got
 */

/** @param {number} n bytes @returns {string} as views/files.go says it */
export function size(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${Math.ceil(n / 1024)} KB`;
  return `${n % (1024 * 1024) === 0 ? n / (1024 * 1024) : (n / (1024 * 1024)).toFixed(1)} MB`;
}

/** @param {Attached} file */
export const isImage = (file) => file.mediaType?.startsWith('image/') ?? false;

/** @param {Attached} file */
export const address = (file) => `/api/attachments/${file.id}`;

/** @param {Attached[]} files @returns {string[]} */
export const ids = (files) => files.map((file) => file.id ?? '');

/** @param {Attached[]} files @returns {HTMLElement} the list of what a question carries */
export function carried(files) {
  const list = clone('carried');
  const [picture, paper] = [...list.children];
  list.replaceChildren(...files.map((file) => {
    const line = /** @type {HTMLElement} */ ((isImage(file) ? picture : paper).cloneNode(true));
    line.dataset.file = JSON.stringify(file);
    /** @type {HTMLAnchorElement} */ (line.querySelector('a')).setAttribute('href', address(file));
    const image = line.querySelector('img');
    if (image) {
      image.setAttribute('src', address(file));
      image.setAttribute('alt', file.name);
      image.setAttribute('width', String(file.width ?? 0));
      image.setAttribute('height', String(file.height ?? 0));
      return line;
    }
    /** @type {HTMLElement} */ (line.querySelector('.name')).textContent = file.name;
    /** @type {HTMLElement} */ (line.querySelector('.size')).textContent = size(file.bytes);
    return line;
  }));
  return list;
}

/** @param {ParentNode} article @returns {Attached[]} what a question on screen carries */
export function carriedBy(article) {
  return [...article.querySelectorAll('.carried [data-file]')].map((line) => JSON.parse(/** @type {HTMLElement} */ (line).dataset.file ?? '{}'));
}
