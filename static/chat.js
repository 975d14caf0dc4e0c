// The chat page. What a person sends goes through the outbox; what the model
// answers comes through one stream, of the request that is running in the visible
// conversation, while the page is visible. Everything shown is keyed by request
// id and replaced by what the server renders.

import { readClock, serverNow, setClock } from './clock.js';
import { Composer, Drafts } from './composer.js';
import { Follow } from './follow.js';
import { page } from './html.js';
import { LiveAnswer, Log } from './log.js';
import { Outbox, attemptOf, judge } from './outbox.js';
import { Stream } from './stream.js';
import { countWords, explain, t } from './strings.js';
import { ulid } from './ulid.js';

/** @param {string} selector @returns {any} */
const $ = (selector) => document.querySelector(selector);

/** @param {string} url @param {RequestInit} [init] */
async function call(url, init) {
  const response = await fetch(url, init);
  readClock(response);
  return response;
}

/** @param {unknown} value */
const json = (value) => ({
  method: 'POST',
  headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
  body: JSON.stringify(value),
});

class Chat {
  /** @type {Stream | undefined} */ #stream;
  /** @type {Promise<void> | undefined} */ #refreshing;
  #refreshAgain = false;

  constructor() {
    const { session = '', account = '', serverTime, fresh } = document.body.dataset;
    setClock(Number(serverTime));
    this.session = session;
    this.fresh = fresh !== undefined; // nothing of this conversation was accepted yet
    this.log = new Log($('#log'));
    this.follow = new Follow($('#latest'));
    this.drafts = new Drafts(localStorage);
    this.outbox = new Outbox({
      storage: localStorage,
      account,
      fetch: call,
      report: (report) => this.#reported(report),
      watched: (entry) => entry.sessionId === this.session && this.log.find('user', entry.requestId) !== null,
    });
    if (this.fresh) this.#adoptFresh();
    this.composer = new Composer({
      form: $('#composer'),
      drafts: this.drafts,
      sessionId: this.session,
      send: (text) => this.send(text) !== undefined,
      stop: () => this.stop(),
    });

    this.#takeUp();
    this.#listen();
    this.log.changed();
    this.outbox.start();
    this.#join();
    this.#showKept();
    this.#offerUndo();
  }

  // A reload of a new chat, or a way around by the login page, must find the draft
  // and the unsent message again: the tab remembers the id of its new chat.
  #adoptFresh() {
    const earlier = sessionStorage.getItem('semel.fresh');
    if (earlier && (this.drafts.get(earlier) || this.outbox.list().some((e) => e.sessionId === earlier))) this.session = earlier;
    sessionStorage.setItem('semel.fresh', this.session);
    document.body.dataset.session = this.session;
    $('#composer').action = `/c/${this.session}`;
  }

  /** Compares what an earlier page left unsent with what the server shows. */
  #takeUp() {
    for (const entry of this.outbox.list()) {
      if (entry.sessionId !== this.session) continue;
      const question = this.log.find('user', entry.requestId);
      if (!question) {
        this.outbox.doubt(entry.requestId); // whatever an earlier page heard, the server does not show it
        this.#showUnheard(entry);
      } else if (this.#live(question)) {
        this.outbox.received(entry.requestId);
      } else {
        this.outbox.settle(entry.requestId);
      }
    }
  }

  /** @param {import('./outbox.js').Entry} entry */
  #showUnheard(entry) {
    this.log.mark(this.log.question(entry.requestId, entry.body.content), entry.state === 'kept' ? 'kept' : 'sending');
  }

  #listen() {
    document.addEventListener('click', (event) => {
      const button = /** @type {HTMLElement} */ (event.target).closest?.('[data-action]');
      const action = /** @type {HTMLElement | null} */ (button)?.dataset.action;
      if (action === 'retry') this.retry(/** @type {HTMLButtonElement} */ (button));
      if (action === 'delete') this.delete(/** @type {HTMLButtonElement} */ (button));
      if (action === 'restore') this.restore(this.session);
      if (action === 'suggest') this.composer.suggest(/** @type {HTMLElement} */ (button).dataset.text ?? '');
      if (action === 'double') this.#double(/** @type {HTMLButtonElement} */ (button));
    });
    document.addEventListener('visibilitychange', () => this.#seen());
    addEventListener('pageshow', (event) => event.persisted && this.#seen());
    addEventListener('pagehide', () => this.#leave());
    addEventListener('online', () => this.#join());
  }

  // A page that comes back may have missed anything, so it asks for the truth.
  #seen() {
    if (document.hidden) return this.#leave();
    this.#join();
    if (!this.fresh) this.refresh();
  }

  #leave() {
    this.#stream?.close();
    this.#stream = undefined;
  }

  /**
   * Sends a message: one call, one intent.
   * @param {string} content
   * @returns {string | undefined} its request id, or nothing when it could not be kept; that is shown
   */
  send(content) {
    let requestId;
    try {
      requestId = ulid(serverNow());
      this.outbox.put({ sessionId: this.session, requestId, content });
    } catch (error) {
      console.error(error);
      this.#notice(t(requestId ? 'js.notKept' : 'js.noId'));
      return undefined;
    }
    this.#notice('');
    this.log.mark(this.log.question(requestId, content), 'sending');
    this.follow.jump();
    return requestId;
  }

  // The chip mints one id for all its clicks and sends each click: what a page
  // without protection does, with what makes it harmless.
  /** @param {HTMLButtonElement} chip */
  #double(chip) {
    if (chip.dataset.request) {
      this.outbox.again(chip.dataset.request);
    } else {
      chip.dataset.request = this.send(chip.dataset.text ?? '') ?? '';
      document.body.classList.add('starting'); // keeps the chip under the pointer
      setTimeout(() => document.body.classList.remove('starting'), 1500);
    }
    const clicks = Number(chip.dataset.clicks ?? 0) + 1;
    chip.dataset.clicks = String(clicks);
    if (clicks > 1) this.#notice(t('js.clicks', { n: clicks }));
  }

  /** @param {import('./outbox.js').Report} report */
  #reported({ kind, entry, record, problem, attempt, ended }) {
    this.#showKept();
    if (entry.sessionId !== this.session) {
      if (kind === 'refused') this.drafts.giveBack(entry.sessionId, entry.body.content);
      return;
    }
    const { requestId } = entry;
    if (kind === 'refused') return this.#refused(entry, problem);
    if (kind === 'elsewhere') {
      if (entry.state === 'received') this.#accepted(entry);
      else if (ended) this.log.remove(requestId); // refused; that tab gave the text back
      else this.log.question(requestId, entry.body.content);
      if (entry.state === 'received' || ended) this.refresh();
      return;
    }
    const question = this.log.question(requestId, entry.body.content);
    switch (kind) {
      case 'trying':
        if (entry.tries === 0 && !this.#live(question)) this.log.mark(question, 'sending');
        break;
      case 'kept':
        if (!this.#live(question)) this.log.mark(question, 'kept', problem ? explain(problem) : '');
        if (entry.login) this.#notice(t('js.login'), '/login');
        break;
      case 'failed':
        this.#accepted(entry);
        question.dataset.attempt = String(attempt);
        this.log.failed(question, problem);
        if (problem.partial) this.refresh();
        break;
      case 'record':
        this.#accepted(entry);
        if (question.dataset.state === 'failed' || !this.#live(question)) question.dataset.attempt = record.attempt;
        // An answer that is final already still comes through the stream, rendered.
        this.log.state(question, ended ? 'generating' : record.state);
        this.#join();
    }
  }

  /** @param {import('./outbox.js').Entry} entry @param {any} problem */
  #refused(entry, problem) {
    this.log.remove(entry.requestId);
    this.drafts.giveBack(entry.sessionId, entry.body.content);
    this.composer.show();
    this.#notice(explain(problem));
    this.#join();
  }

  // The first accepted message makes the conversation: now it has an address.
  /** @param {import('./outbox.js').Entry} entry */
  #accepted(entry) {
    if (!this.fresh) return;
    this.#settleDown();
    this.#title(entry.body.content.trim().split('\n')[0].slice(0, 60));
    this.#listTitle();
  }

  #settleDown() {
    this.fresh = false;
    delete document.body.dataset.fresh;
    sessionStorage.removeItem('semel.fresh');
    history.replaceState(null, '', `/c/${this.session}`);
    for (const field of document.querySelectorAll('input[name=to]')) /** @type {HTMLInputElement} */ (field).value = location.pathname;
  }

  /** @param {string} title */
  #title(title) {
    document.title = `${title} · Semel`;
    $('#title').textContent = title;
    const list = $('#conversations ol');
    let link = list.querySelector(`a[href="/c/${CSS.escape(this.session)}"]`);
    if (!link) {
      const item = document.importNode($('#conversation').content.firstElementChild, true);
      link = item.querySelector('a');
      link.href = `/c/${this.session}`;
      list.prepend(item);
      $('#conversations').classList.remove('none');
    }
    link.textContent = title;
    link.setAttribute('aria-current', 'page');
  }

  async #listTitle() {
    try {
      const response = await call('/api/conversations?limit=1', { headers: { Accept: 'application/json' } });
      const [newest] = (await response.json()).conversations;
      if (newest.id === this.session && newest.title) this.#title(newest.title);
    } catch {
      // The words of the question stand in for the title until the next page.
    }
  }

  /** @param {HTMLElement} question whether its answer is still to come */
  #live(question) {
    return question.dataset.state === 'pending' || question.dataset.state === 'generating';
  }

  // Opens the one stream of this tab: of the first request here that has no answer
  // yet. The others wait their turn, as they do in the server.
  #join() {
    const running = this.log.questions().find((q) => this.#live(q));
    this.composer.running(running !== undefined);
    if (document.hidden || this.#stream || !running) return;
    const requestId = running.dataset.request ?? '';
    /** @type {LiveAnswer | undefined} */
    let answer;
    const live = () => (answer ??= new LiveAnswer(this.log.answer(requestId)));
    const answering = () => {
      if (running.dataset.state !== 'generating' || !answer) this.#announce(t('js.answering'));
      live();
      this.log.state(running, 'generating');
    };
    const over = () => {
      this.outbox.settle(requestId);
      this.#stream = undefined;
    };
    this.#stream = new Stream({
      requestId,
      sessionId: this.session,
      attempt: Number(running.dataset.attempt || 0),
      fetch: call,
      listener: {
        joined: () => answer?.joined(),
        attempt: (attempt) => {
          running.dataset.attempt = String(attempt);
          if (!answer && !this.log.find('assistant', requestId)) return;
          live().reset();
          this.log.partial(live().article, '');
        },
        state: (state) => {
          if (state === 'generating') answering();
          else if (state === 'pending') this.log.state(running, state);
        },
        block: (n, html) => {
          if (!answer || running.dataset.state !== 'generating') answering();
          live().block(n, html);
          this.follow.grown();
        },
        reasoning: (text) => {
          if (!answer || running.dataset.state !== 'generating') answering();
          live().think(text);
          this.follow.grown();
        },
        end: (record) => {
          live().finish(record);
          this.log.partial(live().article, record.message?.finish === 'stopped' ? 'stopped' : '');
          this.log.state(running, record.state);
          over();
          this.#announce(t('js.answered', { n: countWords(live().body.textContent ?? '') }));
          this.follow.grown();
          this.#join();
        },
        failed: (problem) => {
          answer?.cut();
          this.log.failed(running, problem);
          over();
          this.#announce(explain(problem));
          this.#join();
        },
        lost: () => {
          this.#stream = undefined;
          setTimeout(() => this.refresh(), 2000);
        },
      },
    });
    if (running.dataset.state === 'generating') live();
  }

  /** Stops what runs. Its stream says what came of it. */
  async stop() {
    const running = this.log.questions().find((q) => this.#live(q));
    if (!running) return;
    const attempt = Number(running.dataset.attempt || 0);
    const body = { sessionId: this.session, ...(running.dataset.state === 'generating' && attempt ? { attempt } : {}) };
    this.composer.stopButton.disabled = true;
    try {
      const response = await call(`/api/chat/stop/${running.dataset.request}`, json(body));
      if (!response.ok) this.#notice(explain(await response.json()));
    } catch {
      this.#notice(t('js.unreachable'));
    } finally {
      this.composer.stopButton.disabled = false;
    }
  }

  /** Asks again, of the attempt on screen: two tabs that do so start one. @param {HTMLButtonElement} button */
  async retry(button) {
    const question = /** @type {HTMLElement} */ (button.closest('article'));
    const requestId = question.dataset.request ?? '';
    button.disabled = true;
    try {
      const response = await call(`/api/chat/retry/${requestId}`, json({ sessionId: this.session, attempt: Number(question.dataset.attempt || 0) }));
      const verdict = judge(response.status, await response.text(), requestId);
      if (verdict.kind === 'record') {
        this.#notice('');
        this.log.state(question, verdict.record.state === 'pending' ? 'pending' : 'generating');
        this.#join();
      } else if (verdict.kind === 'failed') {
        question.dataset.attempt = String(attemptOf(response)); // another one failed than that on screen
        this.log.failed(question, verdict.problem);
      } else {
        this.#notice(verdict.problem ? explain(verdict.problem) : t('js.unreachable'));
        if (verdict.kind === 'refused') this.refresh();
      }
    } catch {
      this.#notice(t('js.unreachable'));
    } finally {
      button.disabled = false;
    }
  }

  /** @param {HTMLButtonElement} button */
  async delete(button) {
    button.disabled = true;
    try {
      const response = await call(`/api/conversations/${this.session}`, { method: 'DELETE', headers: { Accept: 'application/json' } });
      if (!response.ok && response.status !== 404 && response.status !== 410) throw new Error(`status ${response.status}`);
      for (const entry of this.outbox.list()) if (entry.sessionId === this.session && entry.state === 'received') this.outbox.settle(entry.requestId);
      sessionStorage.setItem('semel.undo', JSON.stringify({ session: this.session, title: $('#title').textContent }));
      location.assign('/');
    } catch {
      button.disabled = false;
      this.#notice(t('js.unreachable'));
    }
  }

  /** @param {string} session */
  async restore(session) {
    try {
      const response = await call(`/api/conversations/${session}/restore`, json({}));
      if (!response.ok) return this.#notice(explain(await response.json()));
      sessionStorage.removeItem('semel.undo');
      location.assign(`/c/${session}`);
    } catch {
      this.#notice(t('js.unreachable'));
    }
  }

  #offerUndo() {
    const undo = JSON.parse(sessionStorage.getItem('semel.undo') ?? 'null');
    if (!undo || !this.fresh) return;
    sessionStorage.removeItem('semel.undo');
    this.#notice(t('js.deleted', { title: undo.title }), () => this.restore(undo.session));
  }

  /** Takes over the page as the server renders it now. */
  refresh() {
    if (document.hidden) return;
    if (this.#refreshing) {
      this.#refreshAgain = true;
      return;
    }
    this.#refreshing = this.#refresh().finally(() => {
      this.#refreshing = undefined;
      if (this.#refreshAgain) {
        this.#refreshAgain = false;
        this.refresh();
      }
    });
  }

  async #refresh() {
    let fresh;
    try {
      const response = await call(`/c/${this.session}`, { headers: { Accept: 'text/html' }, cache: 'no-store', redirect: 'error' });
      fresh = page(await response.text());
    } catch {
      return; // the page stays as it is; the stream and the outbox go on
    }
    // Another page (a portal, a login, another conversation) is not heard.
    if (fresh.body.dataset.session !== this.session) return;
    const log = fresh.querySelector('#log');
    if (!log) return this.#notice(fresh.querySelector('h1')?.textContent ?? ''); // deleted meanwhile
    if (this.fresh) this.#settleDown();
    const streaming = this.#stream?.requestId;
    this.log.reconcile(log, (id) => id === streaming || (this.outbox.get(id)?.state ?? 'received') !== 'received');
    const [list, title] = [fresh.querySelector('#conversations'), fresh.querySelector('#title')];
    if (list && list.innerHTML !== $('#conversations').innerHTML) $('#conversations').replaceWith(document.adoptNode(list));
    if (title) $('#title').textContent = title.textContent;
    document.title = fresh.title;
    for (const question of this.log.questions()) {
      if (question.dataset.state && !this.#live(question)) this.outbox.settle(question.dataset.request ?? '');
    }
    this.#join();
  }

  /** Messages of other conversations that still wait here. */
  #showKept() {
    const kept = this.outbox.list().filter((e) => e.state !== 'received' && e.sessionId !== this.session && e.tries > 0);
    const button = $('#kept');
    button.hidden = kept.length === 0;
    button.textContent = t('js.kept', { n: kept.length });
    button.onclick = () => {
      const { sessionId } = kept[0];
      if ($(`#conversations a[href="/c/${CSS.escape(sessionId)}"]`)) return location.assign(`/c/${sessionId}`);
      sessionStorage.setItem('semel.fresh', sessionId);
      location.assign('/');
    };
  }

  /**
   * Says something above the composer.
   * @param {string} text
   * @param {string | (() => void)} [action] a link to sign in, or what undoes
   */
  #notice(text, action) {
    const notice = $('#notice');
    const button = notice.querySelector('button');
    notice.querySelector('span').textContent = text;
    button.hidden = !action;
    button.textContent = typeof action === 'string' ? t('js.signIn') : t('js.undo');
    button.onclick = typeof action === 'string' ? () => location.assign(action) : action;
    notice.hidden = text === '';
  }

  /** @param {string} text heard by screen readers, not seen */
  #announce(text) {
    $('#live').textContent = text;
  }
}

/** Whether this browser keeps what it is given. */
function storageWorks() {
  try {
    localStorage.setItem('semel.probe', '1');
    localStorage.removeItem('semel.probe');
    return true;
  } catch {
    return false;
  }
}

// Without storage nothing can be promised about a message before the server has
// it, so the plain form stays as it is: its id was minted by the server.
if ($('#composer') && storageWorks()) {
  document.documentElement.classList.add('js');
  new Chat();
}
