// The chat page. What a person sends goes through the outbox; what the model
// answers comes through one stream, of the request that is running in the visible
// conversation, while the page is visible. Everything shown is keyed by request
// id and replaced by what the server renders.

import { Actions } from './actions.js';
import { Acts } from './acts.js';
import { LiveAnswer } from './answer.js';
import { arrive } from './arrive.js';
import { Tails, place } from './branches.js';
import { readClock, serverNow, setClock } from './clock.js';
import { Composer } from './composer.js';
import { prepare } from './copy.js';
import { Drafts } from './drafts.js';
import { Earlier } from './earlier.js';
import { carriedBy, ids } from './files.js';
import { Follow } from './follow.js';
import { help } from './help.js';
import { page } from './html.js';
import { isTouch } from './keys.js';
import { layers } from './layers.js';
import { Log, all } from './log.js';
import { Ops } from './ops.js';
import { Outbox, attemptOf, judge } from './outbox.js';
import { Queue } from './queue.js';
import { Panel } from './panel.js';
import { adopt } from './prefs.js';
import { Sidebar } from './sidebar.js';
import { Stream } from './stream.js';
import { countWords, explain, t } from './strings.js';
import { ulid } from './ulid.js';
import { Wait } from './wait.js';

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
  /** @type {Stream | undefined} */ #answer;
  /** @type {Promise<void> | undefined} */ #refreshing;
  #refreshAgain = false;
  #leaving = false; // it shows a conversation that is being deleted
  /** @type {Map<string, {model?: string, mark: string, why: string}>} tries that a person is asked about, and what stood there before */ #doubted = new Map();
  #told = ''; // the request whose answer a screen reader knows to be coming
  #view = 0; // counts changes of what is shown: a page that was asked for before one says nothing after it
  #at = 0; // the message whose branch is shown instead of the one that questions follow; 0: none

  constructor() {
    const { session = '', account = '', serverTime, fresh } = document.body.dataset;
    setClock(Number(serverTime));
    this.session = session;
    this.fresh = fresh !== undefined; // nothing of this conversation was accepted yet
    this.log = new Log($('#log'));
    this.wait = new Wait(this.log);
    this.follow = new Follow($('#latest'));
    this.drafts = new Drafts(localStorage);
    this.outbox = new Outbox({
      storage: localStorage,
      account,
      fetch: call,
      report: (report) => this.#reported(report),
      watched: (entry) => entry.sessionId === this.session && this.log.holder(entry.requestId) !== null,
      busy: (session) => session === this.session && this.log.holders().some((q) => this.#live(q)),
    });
    if (this.fresh) this.#adoptFresh(account);
    for (const entry of this.outbox.list()) this.drafts.sent(entry);
    this.queue = new Queue({
      element: $('#queue'),
      outbox: this.outbox,
      sessionId: this.session,
      same: ({ body, files = [] }) => this.log.holders().find((q) => this.#live(q) && q.dataset.role === 'user'
        && q.querySelector('.body')?.textContent === body.content && ids(carriedBy(q)).join() === ids(files).join()),
      edit: ({ body, files }) => this.composer.giveBack(body.content ?? '', files, true),
      stop: () => this.stop(),
      join: () => this.follow.jump(),
      announce: (text) => this.#announce(text),
    });
    this.sidebar = new Sidebar({ fetch: call, chat: this.#forTheList() });
    new Panel({ element: $('#panel'), fetch: call, session: () => (this.fresh ? '' : this.session), say: (text) => this.sidebar.toast.show(text) });
    const query = new URLSearchParams(location.search);
    this.#at = Number(query.get('at')) || 0;
    const edit = query.get('edit');
    if (edit) $('#text').value = ''; // it is changed in its place
    for (const article of all($('#log'), 'article')) prepare(article);
    this.earlier = new Earlier({ session: this.session, log: this.log, follow: this.follow, fetch: call, prepare });
    this.acts = this.#acts();
    new Actions({ element: $('#log'), fetch: call, refresh: () => this.refresh(), announce: (text) => this.#announce(text) });
    this.composer = new Composer({
      form: $('#composer'),
      drafts: this.drafts,
      sessionId: this.session,
      fresh: () => (this.fresh ? account : undefined),
      send: (text, files) => this.send(text, files) !== undefined,
      stop: () => this.stop(),
      fetch: call,
      say: (text) => this.#notice(text),
      announce: (text) => this.#announce(text),
    });

    this.#takeUp();
    this.#listen();
    if (edit) this.log.numbered(edit)?.querySelector('[data-action=edit]')?.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }));
    this.log.changed();
    this.outbox.start();
    this.#join();
    this.#showKept();
    this.sidebar.start();
    arrive(this.log, this.follow);
  }

  // A tab has one stream: of an answer, or of the list.
  get #stream() {
    return this.#answer;
  }

  set #stream(stream) {
    this.#answer = stream;
    if (stream) this.sidebar.hold();
    else this.sidebar.release();
  }

  /** @returns {import('./sidebar.js').Chat} */
  #forTheList() {
    return {
      session: () => (this.fresh ? '' : this.session),
      busy: () => this.log.holders().some((q) => this.#live(q)),
      // B20: another tab or device went on with this conversation.
      standing: (entry) => {
        if (this.fresh || this.#stream) return;
        if (!entry || entry.running || $('#log .action[data-open]') || (!this.#at && entry.head !== document.body.dataset.end)) this.refresh();
      },
      leaving: (yes) => (this.#leaving = yes),
      deleted: (session) => {
        for (const entry of this.outbox.list()) if (entry.sessionId === session && entry.state === 'received') this.outbox.settle(entry.requestId);
      },
    };
  }

  // A reload of a new chat, or a way around by the login page, must find the draft
  // and the unsent message again: the tab remembers the id of its new chat. What a
  // tab left that is gone, the next new chat takes up.
  /** @param {string} account */
  #adoptFresh(account) {
    const earlier = sessionStorage.getItem('semel.fresh');
    if (earlier && (this.drafts.isFresh(earlier) || this.outbox.list().some((e) => e.sessionId === earlier))) this.session = earlier;
    else this.session = this.drafts.orphan(account) || this.session;
    this.drafts.hold(this.session, true);
    sessionStorage.setItem('semel.fresh', this.session);
    document.body.dataset.session = this.session;
    $('#composer').action = `/c/${this.session}`;
  }

  /** Compares what an earlier page left unsent with what the server shows. */
  #takeUp() {
    for (const entry of this.outbox.list()) {
      if (entry.sessionId !== this.session || entry.state === 'queued') continue;
      const question = this.log.holder(entry.requestId);
      if (!question && this.log.find('assistant', entry.requestId)) {
        this.outbox.settle(entry.requestId); // another answer, and final
      } else if (!question && entry.state === 'received' && (entry.body.kind || this.#at)) {
        continue; // the server has it, on another branch
      } else if (!question) {
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
    if (!this.#belongs(entry)) return;
    const question = this.#place(entry);
    if (entry.state !== 'asked') return this.log.mark(question, entry.state === 'kept' ? 'kept' : 'sending');
    if (question.querySelector('.asked')) return;
    const why = explain({ code: 'restored_gap' });
    this.log.mark(question, 'asked', why);
    this.#announce(`${why} ${question.querySelector('.asked')?.getAttribute('aria-label')}`);
  }

  #listen() {
    document.addEventListener('click', (event) => {
      const button = /** @type {HTMLElement} */ (event.target).closest?.('[data-action]');
      const action = /** @type {HTMLElement | null} */ (button)?.dataset.action;
      if (!button || !action) return;
      if (button.closest('#log')) this.acts.act(action, button, event);
      if (action === 'retry') {
        event.preventDefault(); // without scripts it posts a form
        this.retry(/** @type {HTMLButtonElement} */ (button));
      }
      if (action === 'confirm' || action === 'withdraw') this.#decide(/** @type {HTMLButtonElement} */ (button), action === 'confirm');
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

  /** @returns {Acts} what the buttons under messages do */
  #acts() {
    return new Acts({
      session: this.session,
      log: this.log,
      drafts: this.drafts,
      earlier: this.earlier,
      tails: new Tails(localStorage, this.session),
      fetch: call,
      ask: (what, files) => this.#ask(what, 'sending', files),
      page: (at) => this.#fetch(at),
      show: (fresh, at) => {
        this.follow.release();
        this.#leave();
        this.#view++;
        this.#at = at;
        this.#adopt(fresh);
        this.#join();
      },
      followed: () => {
        this.#at = 0;
        history.replaceState(history.state, '', location.pathname);
        delete document.body.dataset.aside;
        $('#another')?.remove();
      },
      notice: (text) => this.#notice(text),
      announce: (text) => this.#announce(text),
    });
  }

  /** @param {import('./outbox.js').Entry} entry @returns {HTMLElement} the message that carries its state */
  #place(entry) {
    return place(this.log, entry, (id) => this.#unheard(id));
  }

  /**
   * Whether a request has its place on the branch that is shown: not, while another
   * one is only read.
   * @param {import('./outbox.js').Entry} entry
   */
  #belongs(entry) {
    return this.log.holder(entry.requestId) !== null || document.body.dataset.aside === undefined;
  }

  /** @param {string} requestId whether no page of the server can have it yet */
  #unheard(requestId) {
    return (this.outbox.get(requestId)?.state ?? 'received') !== 'received';
  }

  /**
   * Sends a message: one call, one intent. While another one is under way it waits
   * in the queue. On a branch that the next question would not follow it hangs under
   * its end, and waits in the server.
   * @param {string} content
   * @param {import('./files.js').Attached[]} [files]
   * @returns {string | undefined} its request id, or nothing when it could not be kept; that is shown
   */
  send(content, files) {
    const { aside, end } = document.body.dataset;
    if (aside !== undefined && end) return this.#ask({ kind: 'edit', parentId: end, content }, 'sending', files);
    const busy = this.outbox.busy(this.session) || this.outbox.list().some((entry) => entry.sessionId === this.session && entry.state !== 'asked');
    return this.#ask({ content }, busy ? 'queued' : 'sending', files);
  }

  /**
   * @param {Pick<import('./outbox.js').Body, 'kind' | 'parentId' | 'content'>} what
   * @param {'sending' | 'queued'} [state]
   * @param {import('./files.js').Attached[]} [files]
   * @returns {string | undefined} as send
   */
  #ask(what, state, files = []) {
    /** @type {import('./outbox.js').Body | undefined} */ let body;
    /** @type {import('./outbox.js').Entry} */ let entry;
    try {
      body = { sessionId: this.session, requestId: ulid(serverNow()), ...what };
      if (files.length > 0) body.attachments = ids(files);
      entry = this.outbox.put(body, state, files);
    } catch (error) {
      console.error(error);
      this.#notice(t(body ? 'js.notKept' : 'js.noId'));
      return undefined;
    }
    this.#notice('');
    if (state === 'queued') {
      this.#announce(t('js.queue.waits'));
      return body.requestId;
    }
    const holder = this.#place(entry);
    this.log.mark(holder, 'sending');
    if (what.kind) {
      this.#view++;
      delete document.body.dataset.aside;
      $('#another')?.remove();
      this.#at = 0; // it moves the head to where it stands
      this.#leave();
    }
    if (!what.kind || what.kind === 'edit') this.follow.jump();
    else this.follow.following = true;
    return body.requestId;
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
      if (kind === 'refused') this.drafts.giveBack(entry.sessionId, entry.body.content ?? '', entry.files);
      if (kind === 'record' || kind === 'failed') this.drafts.known(entry.sessionId);
      return;
    }
    this.queue.show();
    if (kind === 'queued' || (kind === 'elsewhere' && entry.state === 'queued')) return;
    const { requestId } = entry;
    if (kind === 'refused') return this.#refused(entry, problem);
    if (!this.#belongs(entry)) {
      if (ended) this.refresh();
      return;
    }
    if (kind === 'elsewhere') {
      if (entry.state === 'received') this.#accepted(entry);
      else if (ended) this.log.remove(requestId); // refused; that tab gave the text back
      else if (entry.state === 'asked' || this.log.holder(requestId)?.querySelector('.asked')) this.#showUnheard(entry);
      else this.#place(entry);
      if (entry.state === 'received' || ended) this.refresh();
      return;
    }
    const question = this.#place(entry);
    switch (kind) {
      case 'trying':
        if (entry.tries === 0 && !this.#live(question)) this.log.mark(question, 'sending');
        break;
      case 'kept':
        if (!this.#live(question)) this.log.mark(question, 'kept', problem ? explain(problem) : '');
        if (entry.login) this.#notice(t('js.login'), `/login?to=${encodeURIComponent(location.pathname)}`);
        break;
      case 'asked':
        this.#showUnheard(entry);
        break;
      case 'failed':
        this.#accepted(entry);
        question.dataset.attempt = String(attempt);
        this.log.failed(question, problem);
        this.refresh(); // its number, its text so far, and where a failed version stands
        break;
      case 'record':
        this.#accepted(entry);
        if (question.dataset.state === 'failed' || !this.#live(question)) question.dataset.attempt = record.attempt;
        // An answer that is final already still comes through the stream, rendered.
        this.log.state(question, ended ? 'generating' : record.state);
        this.#join();
        this.sidebar.refresh();
    }
  }

  /** @param {import('./outbox.js').Entry} entry @param {any} problem */
  #refused(entry, problem) {
    this.log.remove(entry.requestId);
    this.composer.giveBack(entry.body.content ?? '', entry.files);
    this.#notice(explain(problem));
    if (entry.body.kind) this.refresh(); // what it took out of sight comes back
    this.#join();
  }

  // What a person says about a question, or another try, that a restore may have lost
  // the answer of.
  /** @param {HTMLButtonElement} button @param {boolean} yes */
  #decide(button, yes) {
    const holder = /** @type {HTMLElement} */ (button.closest('article'));
    const requestId = holder.dataset.request ?? '';
    const again = this.#doubted.get(requestId);
    if (again && yes) {
      this.#retry(holder, button, again.model, true);
    } else if (again) {
      this.#doubted.delete(requestId);
      this.log.mark(holder, again.mark, again.why);
      /** @type {HTMLElement | null} */ (holder.querySelector('[data-action=retry]'))?.focus();
      this.refresh();
    } else if (yes) {
      if (!this.outbox.confirm(requestId)) return; // another tab was quicker
      this.log.mark(holder, 'sending');
      if (!isTouch()) this.composer.text.focus();
    } else {
      const entry = this.outbox.get(requestId);
      if (entry?.state !== 'asked') return;
      // The text is in the field before the entry ends: a crash in between loses nothing.
      this.log.remove(requestId);
      this.composer.giveBack(entry.body.content ?? '', entry.files, true);
      this.outbox.withdraw(requestId);
      if (entry.body.kind) this.refresh(); // what it took out of sight comes back
      this.#join();
    }
  }

  // The first accepted message makes the conversation: now it has an address.
  /** @param {import('./outbox.js').Entry} entry */
  #accepted(entry) {
    if (!this.fresh) return;
    this.#settleDown();
    this.sidebar.accepted((entry.body.content?.trim() || entry.files?.[0]?.name || '').split('\n')[0].slice(0, 60));
  }

  #settleDown() {
    this.fresh = false;
    delete document.body.dataset.fresh;
    sessionStorage.removeItem('semel.fresh');
    this.drafts.known(this.session);
    history.replaceState(null, '', `/c/${this.session}`);
    for (const field of document.querySelectorAll('input[name=to]')) /** @type {HTMLInputElement} */ (field).value = location.pathname;
  }

  /** @param {HTMLElement} question whether its answer is still to come */
  #live(question) {
    return question.dataset.state === 'pending' || question.dataset.state === 'generating';
  }

  // Opens the one stream of this tab: of the first request here that has no answer
  // yet. The others wait their turn, as they do in the server.
  #join() {
    const running = this.log.holders().find((q) => this.#live(q));
    this.composer.running(running !== undefined);
    this.wait.of(running);
    this.queue.show();
    if (!running) this.outbox.look();
    if (document.hidden || this.#stream || !running) return;
    const requestId = running.dataset.request ?? '';
    /** @type {LiveAnswer | undefined} */
    let answer;
    const live = () => (answer ??= new LiveAnswer(this.log.answer(requestId)));
    const answering = () => {
      if (this.#told !== requestId) this.#announce(t('js.answering')); // once, however often it is joined
      this.#told = requestId;
      live();
      this.log.state(running, 'generating');
    };
    const over = () => {
      this.outbox.settle(requestId);
      this.#stream = undefined;
      this.#view++; // a page that was asked for before this end would take it back
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
          this.refresh(); // its receipt, and what stands beside it
        },
        failed: (problem) => {
          answer?.cut();
          this.log.failed(running, problem);
          over();
          this.#told = ''; // it may be asked again
          this.#announce(explain(problem));
          this.#join();
          this.refresh(); // its number, and where a failed version stands
        },
        lost: () => {
          this.#stream = undefined;
          setTimeout(() => this.refresh(), 2000);
        },
      },
    });
    if (running.dataset.state === 'generating') answering(); // the reply to the question said so, or the page did
  }

  /** Stops what runs; its stream says what came of it. @returns {Promise<boolean>} whether nothing runs on that the server did not hear of */
  async stop() {
    const running = this.log.holders().find((q) => this.#live(q));
    if (!running) return true;
    const attempt = Number(running.dataset.attempt || 0);
    const body = { sessionId: this.session, ...(running.dataset.state === 'generating' && attempt ? { attempt } : {}) };
    this.composer.stopButton.disabled = true;
    try {
      const response = await call(`/api/chat/stop/${running.dataset.request}`, json(body));
      if (!response.ok) this.#notice(explain(await response.json()));
      return response.ok;
    } catch {
      this.#notice(t('js.unreachable'));
      return false;
    } finally {
      this.composer.stopButton.disabled = false;
    }
  }

  /** Asks again, of the attempt on screen: two tabs that do so start one. @param {HTMLButtonElement} button */
  retry(button) {
    return this.#retry(/** @type {HTMLElement} */ (button.closest('article')), button, button.dataset.model);
  }

  /** @param {HTMLElement} question @param {HTMLButtonElement} button @param {string} [model] another one @param {boolean} [confirmed] */
  async #retry(question, button, model, confirmed) {
    const requestId = question.dataset.request ?? '';
    button.disabled = true;
    try {
      const attempt = Number(question.dataset.attempt || 0);
      const body = { sessionId: this.session, attempt, ...(model ? { model } : {}), ...(confirmed ? { confirm: 'restored' } : {}) };
      const response = await call(`/api/chat/retry/${requestId}`, json(body));
      const verdict = judge(response.status, await response.text(), requestId);
      if (verdict.kind === 'refused' && verdict.problem.code === 'restored_gap') {
        const mark = /** @type {HTMLElement | null} */ (question.querySelector('.mark'))?.dataset.mark ?? 'failed';
        this.#doubted.set(requestId, { model, mark, why: question.querySelector('.why')?.textContent?.trim() ?? '' });
        this.log.mark(question, 'asked', explain(verdict.problem));
        /** @type {HTMLElement | null} */ (question.querySelector('.asked'))?.focus(); // none of its buttons: Enter may be pressed twice
        this.#announce(explain(verdict.problem));
        return;
      }
      if (verdict.kind !== 'unheard') this.#doubted.delete(requestId);
      if (verdict.kind === 'record') {
        this.#notice('');
        this.log.state(question, verdict.record.state === 'pending' ? 'pending' : 'generating');
        if (question.dataset.role === 'assistant') this.refresh(); // another version comes into the place of the first
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

  /** Takes over the page as the server renders it now. @returns {Promise<void>} */
  refresh() {
    if (document.hidden || this.#leaving) return Promise.resolve();
    if (this.#refreshing) {
      this.#refreshAgain = true;
      return this.#refreshing;
    }
    this.#refreshing = this.#refresh().finally(() => {
      this.#refreshing = undefined;
      if (this.#refreshAgain) {
        this.#refreshAgain = false;
        return this.refresh();
      }
      return undefined;
    });
    return this.#refreshing;
  }

  async #refresh() {
    const view = this.#view;
    const fresh = (await this.#fetch(this.#at)) ?? (this.#at ? await this.#fetch((this.#at = 0)) : undefined);
    if (document.hidden) return; // it may have less than the stream told that is closed by now; who looks again gets another
    if (view !== this.#view) this.#refreshAgain = true;
    else if (fresh) this.#adopt(fresh);
    this.#join();
  }

  /**
   * The page of this conversation, on one of its branches.
   * @param {number} at
   * @returns {Promise<Document | undefined>} nothing where it cannot be had: the page stays as it is; the stream and the outbox go on
   */
  async #fetch(at) {
    let fresh;
    try {
      const response = await call(`/c/${this.session}${at ? `?at=${at}` : ''}`, { headers: { Accept: 'text/html' }, cache: 'no-store', redirect: 'error' });
      fresh = page(await response.text());
    } catch {
      return undefined;
    }
    // Another page (a portal, a login, another conversation) is not heard.
    if (fresh.body.dataset.session !== this.session) return undefined;
    if (fresh.querySelector('#log')) return fresh;
    this.#notice(fresh.querySelector('h1')?.textContent ?? ''); // deleted meanwhile
    return undefined;
  }

  /** @param {Document} fresh a page of this conversation */
  #adopt(fresh) {
    const log = /** @type {HTMLElement} */ (fresh.querySelector('#log'));
    if (this.fresh) this.#settleDown();
    const streaming = this.#stream?.requestId;
    const above = !(/** @type {HTMLElement} */ (fresh.getElementById('earlier')).hidden);
    const [first] = all(log, 'article');
    const { role, request = '' } = first?.dataset ?? {};
    const known = above && first && this.log.find(/** @type {any} */ (role), request)?.previousElementSibling;
    for (const id of this.#doubted.keys()) if (!log.querySelector(`article[data-state=failed][data-request="${CSS.escape(id)}"]`)) this.#doubted.delete(id);
    this.log.reconcile(log, (id) => id === streaming || this.#unheard(id) || this.#doubted.has(id), above);
    if (!known) this.earlier.adopt(fresh);
    for (const article of all($('#log'), 'article:not(.streaming)')) prepare(article);
    for (const name of ['aside', 'end']) {
      const value = fresh.body.dataset[name];
      if (value === undefined) delete document.body.dataset[name];
      else document.body.dataset[name] = value;
    }
    if (location.pathname === `/c/${this.session}`) history.replaceState(history.state, '', this.#at ? `?at=${this.#at}` : location.pathname);
    const [another, now] = [$('#another'), fresh.querySelector('#another')];
    if (!another?.isEqualNode(now)) {
      another?.remove();
      if (now) $('#composer').before(document.adoptNode(now));
    }
    // What the server has not heard of stands where it was put.
    for (const entry of this.outbox.list()) {
      if (entry.sessionId === this.session && ['sending', 'kept', 'asked'].includes(entry.state)) this.#showUnheard(entry);
    }
    this.sidebar.titled(fresh.querySelector('#title')?.textContent ?? '');
    for (const holder of this.log.holders()) {
      if (holder.dataset.state && !this.#live(holder)) this.outbox.settle(holder.dataset.request ?? '');
    }
    for (const entry of this.outbox.list()) {
      if (entry.sessionId === this.session && entry.body.kind && !this.log.holder(entry.requestId) && this.log.find('assistant', entry.requestId)) this.outbox.settle(entry.requestId);
    }
  }

  /** Messages of other conversations that still wait here. */
  #showKept() {
    const kept = this.outbox.list().filter((e) => e.state !== 'received' && e.sessionId !== this.session && (e.tries > 0 || e.state === 'asked'));
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
if (storageWorks()) {
  document.documentElement.classList.add('js');
  adopt();
  layers();
  help();
  const none = { session: () => '', busy: () => false, standing: () => {}, leaving: () => {}, deleted: () => {} };
  if ($('#composer')) new Chat();
  else {
    const main = $('main.ops');
    const ops = main && new Ops({ element: main, fetch: call });
    const side = new Sidebar({ fetch: call, chat: none, url: main?.dataset.live, more: () => ops?.changed() });
    ops?.start(side);
    side.start();
  }
}
