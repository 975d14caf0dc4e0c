// The words of this page, in its language. They come with the page.

/** @type {Record<string, string | Record<string, string>>} */
const strings = JSON.parse(document.getElementById('strings')?.textContent ?? '{}');
const language = document.documentElement.lang;
const plural = new Intl.PluralRules(language);
const number = new Intl.NumberFormat(language);

/**
 * @param {string} key as in views/locales
 * @param {Record<string, string | number>} [values] what stands in braces; n chooses the plural
 */
export function t(key, values = {}) {
  let text = strings[key] ?? key;
  if (typeof text === 'object') text = text[plural.select(Number(values.n))] ?? text.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    return value === undefined ? whole : typeof value === 'number' ? number.format(value) : value;
  });
}

/** The words for a problem: ours where we have some, else the server's. @param {any} problem */
export function explain(problem) {
  const key = `problem.${problem?.code}`;
  const say = key in strings ? t(key) : problem?.detail || problem?.title || t('problem.other');
  return problem?.outcome === 'unknown' ? `${say} ${t('problem.maybe_billed')}` : say;
}

/** How many words a reader would count. @param {string} text */
export function countWords(text) {
  if (!Intl.Segmenter) return text.split(/\s+/).filter(Boolean).length;
  let n = 0;
  for (const part of new Intl.Segmenter(language, { granularity: 'word' }).segment(text)) if (part.isWordLike) n++;
  return n;
}
