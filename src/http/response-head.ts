/** Heads of replies: status lines and the headers that all replies share, rendered once. */
import { STATUS_CODES } from 'node:http';
import { internal } from '../errors/engine-error.js';
import { MAX_API_VERSION } from './api-version.js';
import type { Headers } from './exchange.js';

export interface ProductIdentity {
  /** Version that the Server header names, such as `28.1.1`. */
  readonly version: string;
  readonly experimental: boolean;
}

/** What the replies of one front have in common. */
export class ResponseHeads {
  readonly #server: string;
  /** From the value of the Server header on, without the last line end, for replies without a body type. */
  readonly #plain: string;
  readonly #typed = new Map<string, string>();

  constructor(product: ProductIdentity) {
    this.#server = `Docker/${product.version} (linux)\r\nApi-Version: ${MAX_API_VERSION.text}\r\nOstype: linux`;
    this.#plain = `${this.#server}\r\nDocker-Experimental: ${product.experimental}`;
  }

  /**
   * The value of a `Server` header followed by the lines of the other common headers and of Content-Type: one call
   * into the HTTP library instead of five.
   */
  serverValue(contentType: string | undefined): string {
    if (contentType === undefined) return this.#plain;
    let value = this.#typed.get(contentType);
    if (value === undefined) {
      value = `${this.#plain}\r\nContent-Type: ${contentType}`;
      // Types are named by routes, not by clients: the map stays small.
      this.#typed.set(contentType, value);
    }
    return value;
  }

  /** As `serverValue`, for requests whose version is refused: they do not reach what knows about experiments. */
  refusedVersionValue(contentType: string): string {
    return `${this.#server}\r\nContent-Type: ${contentType}`;
  }
}

const STATUS_LINES: ReadonlyMap<number, string> = new Map(
  Object.entries(STATUS_CODES).map(([status, reason]) => [Number(status), `${status} ${reason}`]),
);

/** `404 Not Found`. */
export function statusLine(status: number): string {
  return STATUS_LINES.get(status) ?? `${status} Unknown`;
}

/** Replies that never have a body nor a length (RFC 9110). */
export function isBodiless(status: number): boolean {
  return status === 204 || status === 304 || status < 200;
}

/** @throws EngineError internal for a header that would break the head: a bug of a route. */
export function checkHeaders(headers: Headers): void {
  for (const [name, value] of Object.entries(headers)) {
    if (/[\r\n\0]/.test(name + value)) throw internal(`header ${JSON.stringify(name)} has a line break`, { code: 'HEADER' });
  }
}
