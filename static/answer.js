// An answer while it is written.

import { addCopyButtons } from './copy.js';
import { came, fragment } from './html.js';
import { t } from './strings.js';

const codeEnd = /(<\/span>)?<\/code><\/pre><\/div>\n$/; // as views/markdown.go writes it

/**
 * An answer while it streams. Block n owns some nodes; setting it again touches
 * only those, so a selection in earlier text stays.
 */
export class LiveAnswer {
  /** @type {{html: string, nodes: ChildNode[]}[]} */ #blocks = [];
  #told = 0; // blocks that this connection told of
  #thinking = false; // whether it told of reasoning

  /** @param {HTMLElement} article */
  constructor(article) {
    this.article = article;
    this.body = /** @type {HTMLElement} */ (article.querySelector('.body'));
    this.reasoning = /** @type {HTMLElement} */ (article.querySelector('.reasoning'));
    article.classList.add('streaming');
  }

  /** A new connection tells everything again. */
  joined() {
    this.#told = 0;
    this.#thinking = false;
  }

  /**
   * Drops what the last connection did not tell of. A server that was killed may
   * have stored less than it had sent, and what is stored is what counts.
   */
  cut() {
    for (const block of this.#blocks.splice(this.#told)) for (const node of block.nodes) node.remove();
  }

  /** Discards everything: it belongs to an attempt that is over. */
  reset() {
    this.#blocks = [];
    this.body.replaceChildren();
    this.#thoughts('');
  }

  /** @param {number} n @param {string} html */
  block(n, html) {
    if (this.#blocks.length === 0) this.body.replaceChildren(); // what the page came with
    this.#told = n + 1;
    const old = this.#blocks[n];
    if (old?.html === html) return;
    if (old && this.#append(old, html)) return;
    const content = fragment(html);
    const nodes = [...content.childNodes];
    const after = old?.nodes.at(-1)?.nextSibling ?? null;
    for (const node of old?.nodes ?? []) node.remove();
    this.body.insertBefore(content, after);
    this.#blocks[n] = { html, nodes };
    for (const node of nodes) if (node instanceof HTMLElement) addCopyButtons(node);
    this.#heading(t('js.reasoning'));
  }

  /**
   * Adds to a block of code what it has grown by: thousands of lines are not laid
   * out again for the next one.
   * @param {{html: string, nodes: ChildNode[]}} block
   * @param {string} html
   */
  #append(block, html) {
    const box = block.nodes[0] instanceof HTMLElement && block.nodes[0].matches('.code') && block.nodes[0].querySelector('code');
    const [before, after] = [block.html.match(codeEnd), html.match(codeEnd)];
    if (!box || !before || !after || !html.startsWith(block.html.slice(0, before.index))) return false;
    const [first = '', ...boxes] = html.slice(before.index, after.index).split('</span><span class="lines">');
    if ([first, ...boxes].some((lines) => lines.includes('<'))) return false; // it has colours now, or is another thing
    (box.lastElementChild ?? box).append(fragment(first));
    for (const lines of boxes) {
      const span = document.createElement('span');
      span.className = 'lines';
      span.append(fragment(lines));
      box.append(span);
    }
    block.html = html;
    return true;
  }

  /** @param {string} text */
  think(text) {
    const before = this.#thinking ? (this.reasoning.querySelector('.thoughts')?.textContent ?? '') : '';
    this.#thinking = true;
    this.#thoughts(before + text);
    this.#heading(this.#blocks.length ? t('js.reasoning') : t('js.thinking'));
  }

  /** @param {string} text */
  #heading(text) {
    const summary = this.reasoning.querySelector('summary');
    if (summary && !this.reasoning.hidden && summary.textContent !== text) summary.textContent = text;
  }

  /** @param {any} record the final record */
  finish(record) {
    // Leave the nodes alone where the blocks already say the same.
    if (this.#blocks.map((b) => b.html).join('') !== record.html) {
      this.body.replaceChildren(fragment(record.html));
      addCopyButtons(this.body);
    }
    came(this.body, record.html);
    this.#blocks = [];
    this.article.classList.remove('streaming');
    this.article.dataset.seq = record.message?.seq ?? '';
    const chip = this.article.querySelector('.chip');
    if (chip) chip.textContent = record.model; // what it took comes with the page
  }

  /** @param {string} text */
  #thoughts(text) {
    this.reasoning.hidden = text === '';
    /** @type {HTMLElement} */ (this.reasoning.querySelector('.thoughts')).textContent = text;
  }
}
