/** A request's line and headers. */
import { addHeader } from './header-lines.js';

/**
 * The parts of a head. uWebSockets.js only lends them while its callback runs, so they are read lazily, and copied when
 * that ends.
 */
export interface RequestHead {
  /** Returns the value of a header, '' when absent. */
  getHeader(lowerCaseName: string): string;
  /** Returns the path as the client sent it. */
  getUrl(): string;
  /** Returns the query without the `?`; undefined or '' when absent. */
  getQuery(): string | undefined;
  forEach(callback: (lowerCaseName: string, value: string) => void): void;
}

/** A head that stays readable after the library's callback. */
export class KeptHead implements RequestHead {
  readonly #headers: ReadonlyMap<string, string>;
  readonly #url: string;
  readonly #query: string | undefined;

  /** @param headers by lower-case name. */
  constructor(headers: ReadonlyMap<string, string>, url: string, query: string | undefined) {
    this.#headers = headers;
    this.#url = url;
    this.#query = query;
  }

  /** Copies a head. Of repeated headers `addHeader` tells what counts. */
  static copy(head: RequestHead): KeptHead {
    const headers = new Map<string, string>();
    head.forEach((name, value) => addHeader(headers, name, value));
    return new KeptHead(headers, head.getUrl(), head.getQuery());
  }

  getHeader(name: string): string {
    return this.#headers.get(name) ?? '';
  }

  getUrl(): string {
    return this.#url;
  }

  getQuery(): string | undefined {
    return this.#query;
  }

  forEach(callback: (name: string, value: string) => void): void {
    this.#headers.forEach((value, name) => callback(name, value));
  }
}
