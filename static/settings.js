// The settings page. All of it works without this: with it, a choice takes effect
// when it is made, and a test leaves the form as it is.

import { page } from './html.js';
import { chooseEnter } from './keys.js';
import { remember } from './prefs.js';
import { explain, t } from './strings.js';

/** @param {string} selector @returns {any} */
const $ = (selector) => document.querySelector(selector);

const done = $('#done');

$('#preferences form').addEventListener('change', async (/** @type {Event} */ event) => {
  const { name, value } = /** @type {HTMLInputElement} */ (event.target);
  if (name === 'theme') document.documentElement.dataset.theme = value;
  done.textContent = '';
  try {
    const response = await remember({ [name]: value });
    if (!response.ok) throw await response.json();
    if (name === 'sendKey') chooseEnter(value === 'mod_enter');
    if (name === 'language') return location.reload();
    done.textContent = t('js.saved');
  } catch (problem) {
    done.textContent = problem instanceof TypeError ? t('js.unreachable') : explain(problem);
  }
});

const form = $('#connect form');
if (form) connecting(form); // it is for admins

/** The form that connects a model. @param {any} form */
function connecting(form) {
  const preset = form.elements.preset;
  const address = form.elements.url;

  // The address of the chosen provider is shown, and left to the provider unless
  // another is typed.
  const known = () => preset.selectedOptions[0].dataset.url;
  let before = known();
  const showAddress = () => {
    if (address.value === before) address.value = '';
    before = known();
    address.placeholder = before || 'https://…/v1';
  };
  preset.addEventListener('change', showAddress);
  address.placeholder = before || 'https://…/v1';

  form.addEventListener('submit', async (/** @type {SubmitEvent} */ event) => {
    const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
    if (button?.value !== 'test') return; // the browser sends the form, and the server takes it once
    event.preventDefault();
    const body = new URLSearchParams(/** @type {any} */ (new FormData(form)));
    body.set('do', 'test');
    const tested = $('#tested');
    tested.textContent = t('js.testing');
    button.disabled = true;
    try {
      const response = await fetch(form.action, { method: 'POST', body });
      const answer = page(await response.text());
      show(answer);
    } catch {
      tested.textContent = t('js.unreachable');
    } finally {
      button.disabled = false;
    }
  });

  /** Shows what the server says about the form, and leaves what is typed. @param {Document} answer */
  function show(answer) {
    const verdict = answer.querySelector('#tested');
    if (!verdict) throw new Error('no settings page');
    $('#tested').replaceChildren(...[...verdict.childNodes].map((node) => document.adoptNode(node)));
    for (const field of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll('[data-field]'))) {
      const now = answer.querySelector(`[data-field="${field.dataset.field}"]`);
      field.querySelector('.wrong, .hint')?.remove();
      const words = now?.querySelector('.wrong, .hint');
      if (words) field.append(document.adoptNode(words));
      const input = field.querySelector('input, select');
      if (words?.matches('.wrong')) input?.setAttribute('aria-invalid', 'true');
      else input?.removeAttribute('aria-invalid');
    }
    const wrong = form.querySelector('[aria-invalid]');
    if (!wrong) return;
    const more = wrong.closest('details');
    if (more) more.open = true;
    wrong.focus();
  }

  form.addEventListener('click', (/** @type {MouseEvent} */ event) => {
    const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('[data-upstream]'));
    if (!button) return;
    form.elements.upstream_model.value = button.dataset.upstream;
    for (const other of form.querySelectorAll('[data-upstream]')) other.setAttribute('aria-pressed', String(other === button));
  });
}
