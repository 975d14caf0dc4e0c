// The receipt of a request, beside the conversation. Without scripts the same link
// leads to its page.

import { page } from './html.js';
import { clone } from './log.js';

/** @type {HTMLDialogElement | undefined} */ let drawer;

/**
 * Shows the receipt that a link leads to; where it cannot be had, the link is
 * followed, and the browser says why.
 * @param {string} href
 * @param {(url: string, init?: RequestInit) => Promise<Response>} fetch
 */
export async function showReceipt(href, fetch) {
  let receipt;
  try {
    const response = await fetch(href, { headers: { Accept: 'text/html' }, cache: 'no-store', redirect: 'error' });
    receipt = response.ok && page(await response.text()).querySelector('#receipt');
  } catch {
    // offline
  }
  if (!receipt) return location.assign(href);
  const dialog = (drawer ??= make());
  dialog.querySelector('.inside')?.replaceChildren(document.adoptNode(receipt));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function make() {
  const dialog = /** @type {HTMLDialogElement} */ (clone('drawer'));
  document.body.append(dialog);
  dialog.addEventListener('click', (event) => {
    const target = /** @type {Element} */ (event.target);
    if (target === dialog || target.closest('[data-action=close]')) dialog.close();
  });
  dialog.addEventListener('close', () => dialog.querySelector('.inside')?.replaceChildren());
  return dialog;
}
