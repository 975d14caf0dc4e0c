// What opens over the page: drawers keep the focus while they are open, menus close
// when it leaves them. Browsers give it back to where it was.

/** The list on small screens and the panel: what lies under them cannot be reached. */
function drawer(/** @type {HTMLElement} */ element) {
  const under = () => [...document.body.children].filter((e) => e !== element && !e.matches('#toast, #live, dialog, script, template'));
  // Before it closes, or there were nowhere to give the focus back to.
  element.addEventListener('beforetoggle', (event) => {
    const open = /** @type {ToggleEvent} */ (event).newState === 'open';
    if (!open) for (const e of under()) e.toggleAttribute('inert', false);
  });
  element.addEventListener('toggle', (event) => {
    if (/** @type {ToggleEvent} */ (event).newState !== 'open' || !element.matches(':popover-open')) return;
    if (!element.contains(document.activeElement)) /** @type {HTMLElement | null} */ (element.querySelector('[popovertargetaction=hide]'))?.focus();
    for (const e of under()) e.toggleAttribute('inert', true);
  });
}

/** Menus that are details: closed by a click elsewhere, by Escape, by leaving them. */
function menus() {
  const open = () => /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll('details.choice[open]'));
  document.addEventListener('click', (event) => {
    for (const menu of open()) if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false;
  });
  document.addEventListener('focusin', (event) => {
    for (const menu of open()) if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false;
  });
  document.addEventListener('keydown', (event) => {
    const menu = event.key === 'Escape' && /** @type {HTMLDetailsElement | null} */ (/** @type {Element} */ (event.target).closest?.('details.choice[open]'));
    if (!menu) return;
    menu.open = false;
    /** @type {HTMLElement} */ (menu.querySelector('summary')).focus();
    event.stopImmediatePropagation(); // it closes the menu and stops nothing
  }, true);
}

export function layers() {
  for (const element of document.querySelectorAll('#side, #panel')) drawer(/** @type {HTMLElement} */ (element));
  menus();
}
