/** Heads of replies: status lines and the headers that all replies share, rendered once. */
import { STATUS_CODES } from 'node:http';
import { internal } from '../errors/engine-error.js';
import { MAX_API_VERSION } from './api-version.js';
import type { Headers } from './exchange.js';

export interface ProductIdentity {
  /** Version that the Server header names, such as `28.5.2`. */
  readonly version: string;
  readonly experimental: boolean;
}

/**
 * The headers of a reply, without those that depend on how it is sent (length, chunking, connection). The first header
 * has its own name; its value carries all further header lines. So they cost one call into the HTTP library.
 */
export interface ReplyHead {
  readonly status: number;
  readonly name: string;
  readonly value: string;
  /** Name and value as they are sent, for a head that many replies have: the library need not encode it each time. */
  readonly encoded?: EncodedHead;
}

export interface EncodedHead {
  readonly name: ArrayBuffer;
  readonly value: ArrayBuffer;
}

interface KeptHeadLines {
  readonly value: string;
  readonly encoded: EncodedHead;
}

interface LastHead {
  readonly headers: Headers;
  readonly contentType: string | undefined;
  readonly head: ReplyHead;
}

/** Makes the heads of the replies of one front, with what they have in common. */
export class ResponseHeads {
  readonly #version: string;
  readonly #common: string;
  /**
   * Rendered heads of headers that never change, by content type. Routes name the types, not clients, so the map stays
   * small.
   */
  readonly #kept = new WeakMap<Headers, Map<string | undefined, KeptHeadLines>>();
  /** The head that was rendered of those last: many requests in a row are for the same. */
  #last: LastHead | undefined;

  constructor(product: ProductIdentity) {
    this.#version = `Docker/${product.version} (linux)\r\nApi-Version: ${MAX_API_VERSION.text}\r\nOstype: linux`;
    this.#common = `${this.#version}\r\nDocker-Experimental: ${product.experimental}`;
  }

  /**
   * Renders the head of a routed reply. Frozen headers are rendered only once.
   * @throws EngineError internal for a header that would break the head: a bug of a route.
   */
  render(status: number, contentType: string | undefined, headers: Headers = NONE): ReplyHead {
    const last = this.#last;
    if (last?.headers === headers && last.contentType === contentType && last.head.status === status) return last.head;
    const kept = this.#kept.get(headers)?.get(contentType);
    if (kept !== undefined) {
      const head = { status, name: NAME, value: kept.value, encoded: kept.encoded };
      this.#last = { headers, contentType, head };
      return head;
    }
    const value = this.#lines(contentType, headers);
    if (Object.isFrozen(headers)) this.#keep(headers, contentType, value);
    return { status, name: NAME, value };
  }

  #keep(headers: Headers, contentType: string | undefined, value: string): void {
    const byType = this.#kept.get(headers) ?? new Map<string | undefined, KeptHeadLines>();
    this.#kept.set(headers, byType.set(contentType, { value, encoded: { name: ENCODED_NAME, value: encode(value) } }));
  }

  /**
   * Does the same as `render` for a request whose version is refused. Such a request is refused before the part that
   * adds the header about experiments.
   */
  renderRefusedVersion(contentType: string, headers: Headers): ReplyHead {
    return {
      status: 400,
      name: NAME,
      value: `${this.#version}\r\nContent-Type: ${contentType}${headerLines(headers)}`,
    };
  }

  #lines(contentType: string | undefined, headers: Headers): string {
    const type = contentType === undefined ? '' : `\r\nContent-Type: ${contentType}`;
    return `${this.#common}${type}${headerLines(headers)}`;
  }
}

/** The first header of all heads that are rendered here. */
const NAME = 'Server';
const ENCODED_NAME = encode(NAME);

const NONE: Headers = Object.freeze({});

/** Returns memory of its own; that of Node's buffers is shared. */
function encode(text: string): ArrayBuffer {
  return Uint8Array.from(Buffer.from(text)).buffer;
}

/** Renders header lines, each after a line end. */
function headerLines(headers: Headers): string {
  let lines = '';
  for (const [name, value] of Object.entries(headers)) {
    if (/[\r\n\0]/.test(name + value))
      throw internal(`header ${JSON.stringify(name)} has a line break`, { code: 'HEADER' });
    lines += `\r\n${name}: ${value}`;
  }
  return lines;
}

const STATUS_LINES: ReadonlyMap<number, string> = new Map(
  Object.entries(STATUS_CODES).map(([status, reason]) => [Number(status), `${status} ${reason}`]),
);

/** Renders a status line such as `404 Not Found`. */
export function statusLine(status: number): string {
  return STATUS_LINES.get(status) ?? `${status} Unknown`;
}

/** Returns true for replies that never have a body nor a length (RFC 9110). */
export function isBodiless(status: number): boolean {
  return status === 204 || status === 304 || status < 200;
}
