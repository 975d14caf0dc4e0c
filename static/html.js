// The one door through which HTML enters the page. Only what this server rendered
// may pass: it is safe because views/markdown.go made it, not because of anything
// done here.

/** @type {{createHTML(html: string): any}} */
const asItIs = { createHTML: (html) => html };
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy('semel', asItIs) ?? asItIs;

/**
 * @param {string} html rendered by the server
 * @returns {DocumentFragment}
 */
export function fragment(html) {
  const template = document.createElement('template');
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

/** Messages as they came from the server, before scripts put buttons into them. @type {WeakMap<Element, string>} */
const served = new WeakMap();

/**
 * Notes what the server rendered for an element.
 * @param {Element} element
 * @param {string} html
 */
export function came(element, html) {
  const template = document.createElement('template');
  template.innerHTML = policy.createHTML(html);
  served.set(element, template.innerHTML.trim());
}

/** @param {Element} element @returns {string} what the server rendered for it */
export function asServed(element) {
  return served.get(element) ?? element.innerHTML.trim();
}

/**
 * @param {string} html a whole page of this server
 * @returns {Document}
 */
export function page(html) {
  return new DOMParser().parseFromString(policy.createHTML(html), 'text/html');
}
