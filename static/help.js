// The list of keys, and the key that opens it. A key of one character must be possible
// to turn off: who speaks to their computer types without knowing (WCAG 2.1.4).

import { keyNames } from './keys.js';

const off = 'semel.help.off';

export function help() {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById('help'));
  const on = /** @type {HTMLInputElement} */ (dialog.querySelector('[name=on]'));
  const open = () => {
    for (const [key, name] of Object.entries(keyNames())) /** @type {HTMLElement} */ (dialog.querySelector(`[data-key=${key}]`)).textContent = name;
    on.checked = localStorage.getItem(off) === null;
    dialog.showModal();
  };
  on.addEventListener('change', () => {
    try {
      if (on.checked) localStorage.removeItem(off);
      else localStorage.setItem(off, '1');
    } catch {
      on.checked = true; // no room to remember it
    }
  });
  // A button in a list that gave way to the dialog takes no focus back.
  dialog.addEventListener('close', () => {
    if (document.activeElement === document.body) /** @type {HTMLElement | null} */ (document.querySelector('#top .menu'))?.focus();
  });
  document.addEventListener('keydown', (event) => {
    if (!['?', '？'].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (localStorage.getItem(off) !== null || dialog.open || types(event.target)) return;
    event.preventDefault();
    open();
  });
  document.addEventListener('click', (event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest('[data-action=help]')) open();
    if (target === dialog || (dialog.contains(target) && target.closest('[data-action=close]'))) dialog.close();
  });
}

/** Whether a key pressed there is a character of a text, or looks for one in a list. @param {EventTarget | null} target */
function types(target) {
  return target instanceof Element && target.closest('textarea, select, [contenteditable], input:not([type=radio], [type=checkbox], [type=file], [type=submit], [type=button])') !== null;
}
