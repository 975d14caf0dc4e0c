// The page of imports: the files go while the page stays, and what the server says
// of them is put in its place. Without scripts the form does the same by itself.

import { page } from './html.js';

const form = /** @type {HTMLFormElement} */ (document.querySelector('#importer'));
const most = 256 * 1024 * 1024; // as the server has it

/** @param {...(string | Node)} what */
function report(...what) {
  const place = /** @type {HTMLElement} */ (document.querySelector('#report'));
  place.replaceChildren(...what);
  return place;
}

/** @param {string} text @param {string} [name] */
function line(text, name = '') {
  const p = document.createElement('p');
  p.className = name;
  p.textContent = text;
  return p;
}

form.addEventListener('submit', async (event) => {
  const files = [.../** @type {FileList} */ (/** @type {HTMLInputElement} */ (form.elements.namedItem('file')).files)];
  const button = /** @type {HTMLButtonElement} */ (form.querySelector('button'));
  event.preventDefault();
  if (button.disabled) return;
  if (files.reduce((sum, file) => sum + file.size, 0) > most) {
    report(line(form.dataset.tooLarge ?? '', 'bad'));
    return;
  }
  button.disabled = true;
  report(line(form.dataset.busy ?? '', 'busy'));
  let answer;
  try {
    const response = await fetch(form.action, { method: 'POST', body: new FormData(form), headers: { Accept: 'text/html' }, redirect: 'error' });
    answer = page(await response.text()).querySelector('#report');
  } catch {
    // the line is lost: the browser says so when the form is sent by itself, and to send it twice is safe
  }
  button.disabled = false;
  if (!answer) return form.submit();
  report(...document.adoptNode(answer).childNodes).focus();
  form.reset();
});
