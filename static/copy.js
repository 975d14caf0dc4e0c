// Copying. On plain http over a network there is no clipboard API; what browsers
// had before still works there, inside a click.

import { came } from './html.js';
import { t } from './strings.js';

/**
 * @param {string} text
 * @returns {Promise<boolean>} whether it is in the clipboard
 */
export async function copyText(text) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // not allowed here: the old way may be
  }
  return copyBySelection(text);
}

/** @param {string} text */
function copyBySelection(text) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const selection = getSelection();
  const ranges = selection ? [...Array(selection.rangeCount)].map((_, i) => selection.getRangeAt(i)) : [];
  const field = document.createElement('textarea');
  field.className = 'unseen';
  field.value = text;
  (document.querySelector('dialog[open]') ?? document.body).append(field);
  field.select();
  let copied = false;
  try {
    copied = document.execCommand('copy');
  } finally {
    field.remove();
    focused?.focus({ preventScroll: true });
    selection?.removeAllRanges();
    for (const range of ranges) selection?.addRange(range);
  }
  return copied;
}

/**
 * Gives each block of code its button.
 * @param {HTMLElement} root
 */
export function addCopyButtons(root) {
  const boxes = root.matches('.code') ? [root] : [...root.querySelectorAll('.code')];
  for (const box of boxes) {
    if (box.querySelector('.copy')) continue;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.dataset.action = 'copy-code';
    button.textContent = t('js.copy');
    box.append(button);
  }
}

/** Prepares a message that came with a page. @param {HTMLElement} article */
export function prepare(article) {
  const body = /** @type {HTMLElement | null} */ (article.querySelector('.body'));
  if (!body?.querySelector('.code')) return;
  if (!body.querySelector('.copy')) came(body, body.innerHTML);
  addCopyButtons(body);
}

/**
 * The text of a whole message. Of an answer it is what the model wrote, which only
 * the server has; what is on screen stands in for it.
 * @param {HTMLElement} article
 * @param {string} session
 * @param {(url: string, init?: RequestInit) => Promise<Response>} fetch
 */
export async function textOf(article, session, fetch) {
  const body = /** @type {HTMLElement} */ (article.querySelector('.body'));
  if (article.dataset.role === 'user') return body.textContent ?? '';
  try {
    const url = `/api/chat/status/${encodeURIComponent(article.dataset.request ?? '')}?sessionId=${encodeURIComponent(session)}`;
    const response = await fetch(url, { headers: { Accept: 'application/json' } });
    if (response.ok) return (await response.json()).content;
  } catch {
    // offline
  }
  return body.innerText;
}
