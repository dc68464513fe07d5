/** The request of an Exchange, which is the half of it that a handler reads: line, headers and body. */
import type { Readable } from 'node:stream';
import { internal } from '../errors/engine-error.js';
import type { ArchiveSource, PieceSource } from '../ports/archives.js';
import { readJson, requireJsonType, type JsonParser } from './json-body.js';
import { Query } from './query.js';
import { RequestBody } from './request-body.js';
import { KeptHead, type RequestHead } from './request-head.js';
import type { RouteMatch } from './router.js';
import type { Transport } from './transport.js';

/** A request for which the router has found a route. */
export interface RoutedRequest {
  readonly found: RouteMatch;
  readonly method: string;
  readonly head: RequestHead;
}

/** A request is one object, so the class that answers requests extends this one. */
export abstract class IncomingRequest {
  readonly method: string;
  protected readonly match: RouteMatch;
  protected readonly transport: Transport;
  protected head: RequestHead;
  readonly #jsonParser: JsonParser | undefined;
  #query: Query | undefined;
  #body: RequestBody | undefined;

  constructor({ found, method, head }: RoutedRequest, transport: Transport, jsonParser: JsonParser | undefined) {
    this.match = found;
    this.method = method;
    this.head = head;
    this.transport = transport;
    this.#jsonParser = jsonParser;
  }

  /** True when it is answered completely, or the client is gone. */
  abstract get over(): boolean;

  /** Those who authorize have seen the request, and may not have seen all that it says. */
  protected abstract get isAuthorized(): boolean;

  get path(): string {
    return this.match.path;
  }

  get version(): string {
    return this.match.version.text;
  }

  atLeast(major: number, minor: number): boolean {
    return this.match.version.atLeast(major, minor);
  }

  param(name: string): string {
    const value = this.match.params.get(name);
    if (value === undefined) throw new Error(`route ${this.match.route.pattern} has no parameter ${name}`);
    return value;
  }

  get query(): Query {
    this.#query ??= new Query(this.head.getQuery() ?? '');
    return this.#query;
  }

  header(name: string): string | undefined {
    const value = this.head.getHeader(name);
    return value === '' ? undefined : value;
  }

  get bodyLength(): number {
    if (this.head.getHeader('transfer-encoding') !== '') return -1;
    const length = this.head.getHeader('content-length');
    return length === '' ? 0 : Number(length);
  }

  /** True while its reply depends on somebody besides the daemon, if only on a client that has not sent all of it. */
  get waitsForOthers(): boolean {
    return this.match.route.waitsForOthers || (this.bodyLength !== 0 && !this.body.complete);
  }

  async json<T>(): Promise<T> {
    this.#requireShownBody();
    const type = this.header('content-type');
    if (type !== undefined || this.bodyLength !== 0) requireJsonType(type);
    const how = { parser: this.#jsonParser, isShown: this.isAuthorized };
    return (await readJson(this.body, this.bodyLength, this.match.route, how)) as T;
  }

  async optionalJson<T>(): Promise<T | undefined> {
    if (this.bodyLength !== 0) return this.json<T>();
    const type = this.header('content-type');
    if (type !== undefined) requireJsonType(type);
    return undefined;
  }

  bodyStream(): Readable {
    return this.body.stream();
  }

  bodyPieces(): PieceSource {
    return this.body;
  }

  bodySource(): ArchiveSource {
    return this.transport.upload ?? this.body;
  }

  /** For the transport, which fills it, and the readers above. */
  get body(): RequestBody {
    if (this.#body === undefined) {
      this.#body = new RequestBody({
        pause: () => void (this.over || this.transport.pause()),
        resume: () => void (this.over || this.transport.resume()),
      });
      if (this.bodyLength === 0) this.#body.push(Buffer.alloc(0), true);
    }
    return this.#body;
  }

  /** Copies what the request lends, because it is about to be taken away. For the transport. */
  keepRequest(): void {
    this.head = KeptHead.copy(this.head);
  }

  /** A handler reads exactly these bytes, which have been read from the client already. */
  protected replaceBody(bytes: Buffer): void {
    this.#body = RequestBody.of(bytes);
  }

  /** The client is gone. */
  protected failBody(): void {
    this.#body?.fail();
  }

  /** Only bodies that were shown may tell a handler what to do. */
  #requireShownBody(): void {
    if (!this.isAuthorized || this.match.route.body !== 'archive' || this.bodyLength === 0) return;
    throw internal(
      `${this.method} ${this.match.route.pattern} reads JSON from a body that is declared to be an archive`,
    );
  }
}
