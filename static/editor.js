// Changing a question in its place. What is typed is kept per message, so that
// Esc, a reload or a crash loses nothing: the editor opens with it again.

import { Attachments } from './attachments.js';
import { carriedBy } from './files.js';
import { Composition, enterBreaks } from './keys.js';
import { clone } from './log.js';

/**
 * @param {HTMLElement} article the question
 * @param {object} with_
 * @param {string} with_.id of the message
 * @param {import('./drafts.js').Drafts} with_.drafts
 * @param {(url: string, init?: RequestInit) => Promise<Response>} with_.fetch
 * @param {(text: string) => void} with_.announce
 * @param {(text: string, files: import('./files.js').Attached[]) => boolean} with_.send whether it is safe; if not it stays here
 */
export function openEditor(article, { id, drafts, fetch, announce, send }) {
  const open = article.querySelector('.editor textarea');
  if (open) return /** @type {HTMLElement} */ (open).focus();
  const form = /** @type {HTMLFormElement} */ (clone('editor'));
  const text = /** @type {HTMLTextAreaElement} */ (form.querySelector('textarea'));
  const body = /** @type {HTMLElement} */ (article.querySelector('.body'));
  const key = `edit.${id}`;
  const composition = new Composition(text);
  text.value = drafts.get(key) || body.textContent || '';
  text.enterKeyHint = enterBreaks() ? 'enter' : 'send';
  article.classList.add('editing');
  body.after(form);
  // What the question carries stays, unless somebody takes it out.
  const carries = carriedBy(article);
  const files = new Attachments({
    list: /** @type {HTMLElement} */ (form.querySelector('.attached')),
    limits: { count: carries.length, bytes: 0, total: 0 },
    fetch,
    changed: () => files.shape(),
    say: announce,
    announce,
  });
  files.give(carries);

  const shape = () => {
    text.style.height = 'auto';
    text.style.height = `${text.scrollHeight}px`;
  };
  const close = () => {
    form.remove();
    article.classList.remove('editing');
  };
  const cancel = () => {
    close();
    /** @type {HTMLElement | null} */ (article.querySelector('[data-action=edit]'))?.focus();
  };
  text.addEventListener('input', () => {
    try {
      drafts.set(key, text.value === body.textContent ? '' : text.value);
    } catch {
      // A full storage loses the draft on reload; sending says so, typing does not.
    }
    shape();
  });
  text.addEventListener('keydown', (event) => {
    if (composition.stops(event)) {
      event.stopPropagation(); // it ends the change, not the answer that runs
      cancel();
    } else if (composition.sends(event, enterBreaks())) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const content = text.value.replace(/^\s*\n/, '').trimEnd();
    if (content === '' && files.empty) return text.focus();
    close(); // the question is replaced by the new one
    if (send(content, files.ready)) return drafts.set(key, '');
    openEditor(article, { id, drafts, fetch, announce, send });
  });
  form.querySelector('[data-action=cancel]')?.addEventListener('click', cancel);
  shape();
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);
}
