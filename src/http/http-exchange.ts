/** The Exchange that handlers get, over any transport: how the request that they read is answered. */
import { performance } from 'node:perf_hooks';
import { EngineError, isEngineError, messageOf } from '../errors/engine-error.js';
import type { AuthorizedRequest, Authorizer } from '../ports/authorization.js';
import { isAttempt, type Attempt, type KeptReplies, type RetryKind } from '../ports/kept-replies.js';
import type { Logger } from '../ports/logger.js';
import type { AuditLog } from './audit.js';
import { authorizationReply, authorizationRequest, withShownBody } from './authorization.js';
import type { ClientSocket } from './client-socket.js';
import { errorBody, isTrouble, messageBody, statusOf } from './error-status.js';
import type { Exchange, Headers, HijackOptions, StreamOptions } from './exchange.js';
import type { Gate, PendingExchange, RequestSummary } from './gate.js';
import { HeldStream } from './held-stream.js';
import { IncomingRequest, type RoutedRequest } from './incoming-request.js';
import { jsonLimitsOf, type JsonParser } from './json-body.js';
import { KEY_HEADER, keyedRequest } from './keyed-request.js';
import { keptStream } from './kept-stream.js';
import type { Peer } from './peer.js';
import { CLIENT_LEFT, type RequestObserver } from './request-observer.js';
import { statusLine, type ReplyHead, type ResponseHeads } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import { runAll } from './stream-state.js';
import type { StreamOwner, Transport } from './transport.js';

const RAW_STREAM = 'application/vnd.docker.raw-stream';
const JSON_TYPE = 'application/json';
const TAKEN_OVER = 'the request with this Idempotency-Key was served, and its connection carries what it gives';
const RETRY: Headers = Object.freeze({ 'Retry-After': '1' });

/** The exchanges of one front share these services. */
export interface ExchangeServices {
  readonly heads: ResponseHeads;
  readonly logger: Logger;
  readonly observer?: RequestObserver;
  /** Asked before a handler runs, and before its reply is sent. */
  readonly authorizer?: Authorizer;
  readonly audit?: AuditLog;
  /** Has the replies of requests with an `Idempotency-Key`; absent: the header has no effect. */
  readonly keptReplies?: KeptReplies;
  /** Parses bodies that would hold up other requests on this thread; absent: they are parsed on this thread. */
  readonly jsonParser?: JsonParser;
}

let lastId = 0;

export class HttpExchange extends IncomingRequest implements Exchange, PendingExchange {
  isEndless = false;
  followsContainer = false;
  readonly #number = ++lastId;
  readonly #services: ExchangeServices;
  readonly #gate: Gate;
  #stream: ResponseStream | undefined;
  /** A stream that may not be sent yet. */
  #held: HeldStream | undefined;
  #authorized: AuthorizedRequest | undefined;
  #attempt: Attempt | undefined;
  /** `open` until a reply is begun, `over` when it is complete or the client is gone. */
  #phase: 'open' | 'begun' | 'over' = 'open';
  #gone = false;
  #status = CLIENT_LEFT;
  /** True when the request failed, also where its status had already been sent as a success. */
  #hasFailed = false;
  readonly #startedMs = performance.now();
  /** This is the peer of a call that is audited. */
  #auditedPeer: Peer | undefined;
  #abortController: AbortController | undefined;
  #closeCallbacks: (() => void)[] | undefined;

  constructor(services: ExchangeServices, gate: Gate, transport: Transport, request: RoutedRequest) {
    super(request, transport, services.jsonParser);
    this.#services = services;
    this.#gate = gate;
    gate.enter();
  }

  get id(): string {
    return `r${this.#number}`;
  }

  get over(): boolean {
    return this.#phase === 'over';
  }

  get status(): number {
    return this.#status;
  }

  get attempt(): Attempt | undefined {
    return this.#attempt;
  }

  protected get isAuthorized(): boolean {
    return this.#authorized !== undefined;
  }

  get signal(): AbortSignal {
    this.#abortController ??= new AbortController();
    if (this.#gone) this.#abortController.abort();
    return this.#abortController.signal;
  }

  onClose(callback: () => void): void {
    if (this.over) callback();
    else (this.#closeCallbacks ??= []).push(callback);
  }

  sendJson(status: number, value: unknown, headers?: Headers): void {
    this.#reply(status, JSON_TYPE, `${JSON.stringify(value)}\n`, headers);
  }

  sendRenderedJson(status: number, json: string | Uint8Array, headers?: Headers): void {
    this.#reply(status, JSON_TYPE, json, headers);
  }

  sendRendered(status: number, contentType: string, body: string | Uint8Array): void {
    this.#reply(status, contentType, body, undefined);
  }

  sendEmpty(status: number, headers?: Headers): void {
    this.#reply(status, undefined, undefined, headers);
  }

  sendText(status: number, text: string, headers?: Headers): void {
    this.#reply(status, 'text/plain; charset=utf-8', text, headers);
  }

  noteFailure(): void {
    this.#hasFailed = true;
  }

  stream(status: number, headers?: Headers, options: StreamOptions = {}): ResponseStream {
    this.isEndless = options.isEndless === true;
    this.followsContainer = options.followsContainer === true;
    const head = this.#services.heads.render(status, undefined, headers);
    this.#begin(status);
    this.#gate.pending.add(this);
    const open = (owner: StreamOwner): ResponseStream =>
      this.transport.stream(head, owner, this.bodyLength !== 0 && !this.body.complete, options.unreadBytes);
    if (this.#authorized === undefined) {
      this.#stream = open(this);
      return this.#keeping(this.#stream, headers);
    }
    const held = new HeldStream(this, () => this.transport.abort());
    this.#held = held;
    this.#stream = held;
    this.#whenAllowed(this.#authorized, head, undefined, () => held.release(open));
    return this.#keeping(held, headers);
  }

  #keeping(stream: ResponseStream, headers: Headers | undefined): ResponseStream {
    const attempt = this.#attempt;
    if (attempt === undefined) return stream;
    const contentType = headers?.['Content-Type'] ?? JSON_TYPE;
    return keptStream(stream, { attempt, contentType, hasFailed: () => this.#hasFailed });
  }

  hijack(options: HijackOptions): Promise<ClientSocket> {
    if (this.header('upgrade') === undefined)
      return this.#takeOver(200, 'OK', { 'Content-Type': RAW_STREAM }, options.commonHeaders);
    return this.#takeOver(
      101,
      'UPGRADED',
      { 'Content-Type': options.contentType, Connection: 'Upgrade', Upgrade: 'tcp' },
      options.commonHeaders,
    );
  }

  upgrade(protocol: 'websocket' | 'h2c', headers: Headers = {}): Promise<ClientSocket> {
    return this.#takeOver(101, 'Switching Protocols', { Upgrade: protocol, Connection: 'Upgrade', ...headers }, false);
  }

  async #takeOver(status: number, reason: string, headers: Headers, commonHeaders: boolean): Promise<ClientSocket> {
    const common = this.#services.heads.render(status, undefined, undefined);
    await this.#authorized?.authorizeReply(authorizationReply(common, undefined));
    this.#begin(status);
    // The bytes of the connection cannot be given again, so who repeats the request is told that it was done.
    void this.#settleAttempt(409, JSON_TYPE, messageBody(TAKEN_OVER));
    const socket = this.transport.takeSocket();
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
    if (commonHeaders) lines.push(`${common.name}: ${common.value}`);
    socket.write(`HTTP/1.1 ${status} ${reason}\r\n${lines.join('\r\n')}\r\n\r\n`);
    this.settle(false);
    return socket;
  }

  sendHijackError(error: unknown): void {
    const head = { status: statusOf(error), name: 'Content-Type', value: RAW_STREAM };
    this.#begin(head.status);
    const send = (): void => {
      const socket = this.transport.takeSocket();
      socket.end(`HTTP/1.1 ${statusLine(head.status)}\r\n${head.name}: ${head.value}\r\n\r\n${messageOf(error)}\r\n`);
      socket.resume();
      this.settle(false);
    };
    if (this.#authorized === undefined) return send();
    this.#gate.pending.add(this);
    this.#whenAllowed(this.#authorized, head, undefined, send);
  }

  /** Runs the handler; whatever it throws, or its forgetting to reply, becomes the reply. For the transport. */
  run(): void {
    try {
      const { audit, authorizer } = this.#services;
      if (audit?.covers(this.match.route) === true) this.#auditedPeer = this.transport.peer;
      this.#gate.requireAllowed(this.method, this.match);
      const pending = authorizer?.active === true ? this.#runAuthorized(authorizer) : this.#handle();
      if (pending === undefined) {
        this.#requireReply();
      } else {
        // A handler may have replied before its first wait: nobody would take this out again.
        if (!this.over) this.#gate.pending.add(this);
        pending.then(
          () => this.#requireReply(),
          (error: unknown) => this.#fail(error),
        );
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  /** The exchange is over; `gone` when the client left before that. Idempotent. For the transport. */
  settle(gone: boolean): void {
    if (this.over) return;
    this.#phase = 'over';
    this.#gone = gone;
    this.#gate.leave(this);
    this.#hasFailed ||= gone && this.#stream !== undefined;
    this.#report();
    if (gone) {
      this.#held?.gone();
      this.failBody();
      this.#abortController?.abort();
    }
    if (this.#closeCallbacks !== undefined) runAll(this.#closeCallbacks, (error) => this.report(error));
  }

  #report(): void {
    const pattern = this.match.route.pattern;
    this.#services.observer?.answered(this.method, pattern, this.#status, this.#startedMs, !this.#hasFailed);
    const peer = this.#auditedPeer;
    if (peer === undefined) return;
    const { id, method, path, status } = this;
    const seconds = (performance.now() - this.#startedMs) / 1000;
    this.#services.audit?.record({ id, peer, method, path, query: this.head.getQuery() ?? '', status, seconds });
  }

  summary(): RequestSummary {
    const seconds = (performance.now() - this.#startedMs) / 1000;
    return { id: this.id, method: this.method, route: this.match.route.pattern, phase: this.#phase, seconds };
  }

  report(error: unknown): void {
    this.#log(error, 'a callback at the end of a request failed');
  }

  /** Cuts the connection, whatever the handler is doing. */
  abort(): void {
    if (this.over) return;
    // A stream may have left the transport, which then serves somebody else.
    if (this.#stream === undefined) this.transport.abort();
    else this.#stream.abort();
    this.settle(true);
  }

  #reply(
    status: number,
    contentType: string | undefined,
    body: string | Uint8Array | undefined,
    headers: Headers | undefined,
  ): void {
    const kept = this.#settleAttempt(status, contentType, body);
    // A client that left is no fault of the handler, which may not have noticed yet.
    if (this.#gone) return;
    const head = this.#services.heads.render(status, contentType, headers);
    this.#begin(status);
    const authorized = this.#authorized;
    if (authorized === undefined && kept === undefined) return this.#send(head, body, false);
    this.#gate.pending.add(this);
    const send = (): void => void (this.over || this.#send(head, body, false));
    const shown = this.match.route.body === 'secret' ? undefined : body;
    const sendAllowed = authorized === undefined ? send : () => this.#whenAllowed(authorized, head, shown, send);
    if (kept === undefined) sendAllowed();
    else void kept.then(sendAllowed);
  }

  /** Keeps what a request with a key is answered; resolves when it is kept. A failure of the daemon is no answer. */
  #settleAttempt(
    status: number,
    contentType: string | undefined,
    body: string | Uint8Array | undefined,
  ): Promise<void> | undefined {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    if (status >= 500) attempt?.drop();
    return status >= 500 ? undefined : attempt?.keep({ status, contentType, body: Buffer.from(body ?? '').toString() });
  }

  /** @param gone true when the handler does not know that this is the end. */
  #send(head: ReplyHead, body: string | Uint8Array | undefined, gone: boolean): void {
    this.transport.reply(head, body);
    this.settle(gone);
  }

  /** Runs the handler, unless the request has a key and the reply to it is there. */
  #handle(): void | Promise<void> {
    const { keptReplies } = this.#services;
    const { retry, handler } = this.match.route;
    if (retry === undefined || keptReplies === undefined) return handler(this);
    const key = this.header(KEY_HEADER);
    const kind = key === undefined ? undefined : retry(this);
    return key === undefined || kind === undefined ? handler(this) : this.#handleKeyed(keptReplies, key, kind);
  }

  async #handleKeyed(keptReplies: KeptReplies, key: string, kind: RetryKind): Promise<void> {
    const { route } = this.match;
    const body = route.body === 'json' && this.bodyLength !== 0 ? this.body : undefined;
    const { method, path, version } = this;
    const query = this.head.getQuery() ?? '';
    const parts = { kind, key, peer: this.transport.peer, method, path, version, query };
    const { request, bytes } = await keyedRequest(parts, body, jsonLimitsOf(route).bytes);
    if (bytes !== undefined) this.replaceBody(bytes);
    const admitted = await keptReplies.admit(request);
    if (!isAttempt(admitted)) return this.#reply(admitted.status, admitted.contentType, admitted.body, undefined);
    if (this.#gone) return admitted.drop();
    this.#attempt = admitted;
    await route.handler(this);
  }

  /** Shows the request to those who authorize, then runs the handler on exactly what they saw. */
  async #runAuthorized(authorizer: Authorizer): Promise<void> {
    const { peer } = this.transport;
    const ask = async (body: Buffer | undefined): Promise<void> => {
      this.#authorized = await authorizer.authorize(
        authorizationRequest(this.method, this.path, this.head, peer, body),
      );
      if (body !== undefined) this.replaceBody(body);
    };
    if (this.match.route.body === 'json' && this.bodyLength !== 0) await withShownBody(this.body, this.bodyLength, ask);
    else await ask(undefined);
    if (!this.#gone) await this.#handle();
  }

  /** Runs `send` when the reply may be sent; otherwise its refusal takes its place. */
  #whenAllowed(
    authorized: AuthorizedRequest,
    head: ReplyHead,
    body: string | Uint8Array | undefined,
    send: () => void,
  ): void {
    authorized.authorizeReply(authorizationReply(head, body)).then(
      () => void (this.over || send()),
      (error: unknown) => this.#refuse(error),
    );
  }

  #refuse(error: unknown): void {
    if (this.over) return;
    this.#status = statusOf(error);
    if (this.#status >= 500) this.#log(error, 'request failed');
    this.#held?.deny();
    this.#send(this.#services.heads.render(this.#status, JSON_TYPE, undefined), errorBody(error), true);
  }

  #begin(status: number): void {
    if (this.#gone) throw new EngineError('cancelled', 'the client closed the connection');
    if (this.#phase !== 'open') throw new Error(`${this.method} ${this.match.route.pattern} was answered twice`);
    this.#phase = 'begun';
    this.#status = status;
  }

  #requireReply(): void {
    if (this.#phase === 'open') this.#fail(new Error('the handler ended without a reply'));
  }

  #fail(error: unknown): void {
    if (this.#gone) {
      void this.#settleAttempt(statusOf(error), JSON_TYPE, errorBody(error));
      // The consequence of the client's leaving; anything else would be a bug worth seeing.
      if (!isEngineError(error, 'cancelled')) this.#log(error, 'request failed after the client had left');
      return;
    }
    // A handler that reads the body from the socket is the first to see that the client has left.
    if (this.transport.upload !== undefined && isEngineError(error, 'cancelled')) return this.abort();
    const status = statusOf(error);
    if (status >= 500 || this.#phase !== 'open') this.#log(error, 'request failed');
    if (this.#phase !== 'open') return this.abort();
    if (status === 304) return this.sendEmpty(status);
    const isOverloaded = isEngineError(error) && error.code === 'OVERLOADED';
    this.sendRenderedJson(status, errorBody(error), isOverloaded ? RETRY : undefined);
  }

  #log(error: unknown, message: string): void {
    const fields = { req: this.id, method: this.method, path: this.path, err: error };
    this.#services.logger[isTrouble(error) ? 'error' : 'info'](fields, message);
  }
}
