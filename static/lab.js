// The stage of the lab. The server draws it, with or without this; with it, the stage
// changes in its place, and keys go from step to step.

import { copyText } from './copy.js';
import { fragment, page } from './html.js';

/** @param {string} selector @returns {any} */
const $ = (selector) => document.querySelector(selector);
const projector = document.body.hasAttribute('data-projector') ? '?projector=1' : '';

/** @type {EventSource | undefined} */ let events;

/** Puts what the server drew into the place of what is there. @param {HTMLElement} fresh a stage */
function adopt(fresh) {
  const stage = $('#stage');
  if (fresh.dataset.run === stage.dataset.run && Number(fresh.dataset.version) < Number(stage.dataset.version)) return;
  const controls = $('#stage-controls');
  const now = /** @type {HTMLFormElement} */ (fresh.querySelector('#stage-controls'));
  const same = fresh.dataset.run === stage.dataset.run && now.dataset.state === controls.dataset.state;
  for (const notice of stage.querySelectorAll(':scope > .notice')) notice.remove();
  const notice = fresh.querySelector(':scope > .notice');
  if (notice) stage.prepend(notice);
  if (same) {
    // The buttons stay under the finger, and know which step is seen.
    if (controls.elements.at) controls.elements.at.value = /** @type {any} */ (now.elements).at.value;
  } else {
    const focused = controls.contains(document.activeElement) ? document.activeElement.dataset.do ?? '' : undefined;
    controls.replaceWith(now);
    if (focused !== undefined) /** @type {HTMLElement | null} */ (now.querySelector(`[data-do="${focused}"]`) ?? now.querySelector('.primary'))?.focus();
  }
  for (const id of ['stage-live', 'stage-tools']) {
    const part = /** @type {Element} */ (fresh.querySelector(`#${id}`));
    const old = $(`#${id}`);
    if (!old.isEqualNode(part)) old.replaceWith(part);
  }
  Object.assign(stage.dataset, fresh.dataset);
  $('main').dataset.state = fresh.dataset.state;
}

/**
 * Follows a run. Also while the page is hidden: who shows it changes to another window
 * and comes back, and a run that nobody follows is ended.
 */
function follow() {
  const { run, state } = $('#stage').dataset;
  events?.close();
  events = undefined;
  if (!run || !['starting', 'playing', 'paused'].includes(state)) return;
  const stream = (events = new EventSource(`/lab/runs/${encodeURIComponent(run)}/events${projector}`));
  stream.addEventListener('stage', (event) => {
    const { html, said, live } = JSON.parse(event.data);
    if (!live) stream.close();
    const stage = /** @type {HTMLElement} */ (fragment(html).firstElementChild);
    adopt(stage);
    if (said && $('#stage-said').textContent !== said) $('#stage-said').textContent = said;
  });
}

document.addEventListener('submit', async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.matches('#stage-controls')) return; // not form.id: that is its field
  event.preventDefault();
  const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
  const body = new URLSearchParams(/** @type {any} */ (new FormData(form, button)));
  let fresh;
  try {
    const response = await fetch(form.action, { method: 'POST', body, headers: { Accept: 'text/html' } });
    fresh = page(await response.text()).querySelector('#stage');
  } catch {
    // The line is lost. To press again is safe: the page knows the id of the run, and the step.
    return;
  }
  if (!fresh) return location.reload(); // a login, or a run that is no longer kept
  const began = $('#stage').dataset.run !== /** @type {HTMLElement} */ (fresh).dataset.run;
  adopt(/** @type {HTMLElement} */ (document.adoptNode(fresh)));
  if (!began) return;
  const { link } = $('#stage').dataset;
  history.replaceState(null, '', projector ? `${link}&projector=1` : link);
  follow();
});

document.addEventListener('keydown', (event) => {
  if (event.key !== 'ArrowRight' && event.key !== ' ') return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.defaultPrevented || $('dialog[open]')) return;
  const target = /** @type {Element} */ (event.target);
  if (target.closest('input, textarea, select') || (event.key === ' ' && target.closest('a, button, summary, [tabindex]'))) return;
  const button = $('#stage-controls [data-do=next]') ?? ($('#stage-controls .primary[data-do=many]') ? null : $('#stage-controls [data-do=step]'));
  if (!button) return;
  event.preventDefault();
  if (!event.repeat) button.click();
});

document.addEventListener('click', async (event) => {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('#stage [data-do]'));
  if (button?.dataset.do === 'print') print();
  if (button?.dataset.do !== 'link') return;
  const { link = '', copied = '' } = $('#stage').dataset;
  if (await copyText(location.origin + link)) /** @type {Element} */ (button.querySelector('span')).textContent = copied;
});

follow();
