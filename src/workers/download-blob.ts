/**
 * Downloads the bytes of a blob, in order, from a given place: with retries, renewed credentials, ranges, and several
 * connections.
 */
import type { IncomingMessage } from 'node:http';
import { dataLoss, internal, isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { factsOf, statusError, transportError } from '../registry/failure.js';
import { type HttpLimits, type HttpRequest, readBody, sendRequest } from '../registry/http.js';
import { freeBuffer } from '../sys/process/free-buffer.js';
import { eachChunk } from './each-chunk.js';
import { freeReceived } from './free-received.js';
import { type FetchPiece, inPieces, isRoomForPieces, MAX_CONNECTIONS, Pace } from './in-pieces.js';
import type { PartialFile } from './partial-file.js';
import type { RetryPolicy, Source, TaskLink } from './task-link.js';

export interface BlobInput extends RetryPolicy {
  readonly source: Source;
  readonly limits: HttpLimits;
  /** This is the digest of the blob, as the manifest declares it. */
  readonly digest: Digest;
  readonly sizeBytes: number;
}

export interface BlobSink {
  /** Returns the number of bytes taken so far, where the download goes on. */
  position(): number;
  /** Takes a chunk, which is its own; a promise holds the next one up. */
  take(chunk: Buffer): void | Promise<void>;
}

const MAX_ERROR_BYTES = 64 << 10;
/** For a smaller rest of a blob, more connections are not worth it. */
const MIN_PIECES_BYTES = 16 << 20;

export class BlobDownload {
  readonly #input: BlobInput;
  readonly #link: Pick<TaskLink<never>, 'persist' | 'signal' | 'moreConnections'>;
  readonly #sink: BlobSink;
  readonly #partial: PartialFile | undefined;
  /** False once pieces failed: then one connection has to do. */
  #mayUsePieces = true;

  constructor(
    input: BlobInput,
    link: Pick<TaskLink<never>, 'persist' | 'signal' | 'moreConnections'>,
    sink: BlobSink,
    partial: PartialFile | undefined,
  ) {
    this.#input = input;
    this.#link = link;
    this.#sink = sink;
    this.#partial = partial;
  }

  /**
   * Resolves when the sink has every byte. Rejects with the errors of the sink, and with those of the registry when the
   * attempts are spent.
   */
  async run(): Promise<void> {
    if (this.#sink.position() === this.#input.sizeBytes) return;
    await this.#link.persist(
      this.#input.source,
      this.#input,
      () => this.#sink.position(),
      (source) => this.#attempt(source),
    );
  }

  async #attempt(source: Source): Promise<void> {
    const sink = this.#sink;
    const { digest, sizeBytes } = this.#input;
    const connections = await this.#readOne(source);
    if (connections > 1) await this.#readPieces(source, connections);
    if (sink.position() < sizeBytes) {
      throw internal(`unexpected EOF: layer ${digest} ended after ${sink.position()} of ${sizeBytes} bytes`, {
        code: 'LAYER_TRUNCATED',
        details: { retryable: true },
      });
    }
  }

  /**
   * Reads over one connection to its end, or until more connections would be faster; then it returns how many the blob
   * may have.
   */
  async #readOne(source: Source): Promise<number> {
    const from = this.#sink.position();
    const request = this.#request(source, from, undefined, this.#link.signal);
    const response = await sendRequest(request);
    let skip = await this.#bytesToSkip(request, response, from);
    const { etag, 'accept-ranges': ranges } = response.headers;
    if (this.#partial && etag?.startsWith('"') === true) this.#partial.validator = { url: source.url, etag };
    const hasRanges = response.statusCode === 206 || ranges === 'bytes';
    const pace = new Pace();
    let connections = 1;
    /** Returns false when the blob gets more connections. */
    const goesOn = async (): Promise<boolean> => {
      const more = await this.#link.moreConnections(MAX_CONNECTIONS - 1);
      if (more > 0) connections += more;
      else pace.wait();
      return more === 0;
    };
    const consumed = (): boolean | Promise<boolean> => {
      pace.consumed();
      return hasRanges && this.#mayUseMore() && pace.isSlow() ? goesOn() : true;
    };
    const take = (received: Buffer): boolean | Promise<boolean> => {
      pace.arrived(received.length);
      // A server without ranges starts over: what is known already is passed by.
      const chunk = skip > 0 ? received.subarray(Math.min(skip, received.length)) : received;
      skip -= received.length - chunk.length;
      const taken = chunk.length > 0 ? this.#sink.take(chunk) : undefined;
      return taken ? taken.then(consumed) : consumed();
    };
    freeReceived(response);
    await eachChunk(response, take, (error) => transportError(request, error));
    return connections;
  }

  #mayUseMore(): boolean {
    return this.#mayUsePieces && isRoomForPieces() && this.#input.sizeBytes - this.#sink.position() >= MIN_PIECES_BYTES;
  }

  async #readPieces(source: Source, connections: number): Promise<void> {
    this.#mayUsePieces = false;
    const fetch: FetchPiece = (from, to, signal) => this.#fetchPiece(source, from, to, signal);
    const pieces = inPieces(this.#sink.position(), this.#input.sizeBytes, connections, fetch);
    for await (const chunk of pieces) await this.#sink.take(chunk);
  }

  /** Goes on after a break as long as each attempt brings something. */
  async #fetchPiece(source: Source, from: number, to: number, signal: AbortSignal): Promise<Buffer> {
    const piece = Buffer.allocUnsafeSlow(to - from);
    const either = AbortSignal.any([this.#link.signal, signal]);
    for (let at = from; at < to;) {
      const request = this.#request(source, at, to - 1, either);
      const start = at - from;
      let received = 0;
      let failure: unknown = new Error('the server sent nothing');
      try {
        const response = await sendRequest(request);
        if ((await this.#bytesToSkip(request, response, at)) > 0) {
          response.destroy();
          throw transportError(request, new Error('the server does not send ranges any more'));
        }
        // Chunks may be tiny, and a server may send more than was asked for, without end.
        const take = (chunk: Buffer): boolean => {
          const count = chunk.copy(piece, start + received);
          received += count;
          const isWanted = count === chunk.length;
          freeBuffer(chunk);
          return isWanted;
        };
        freeReceived(response);
        await eachChunk(response, take, (error) => transportError(request, error));
      } catch (error) {
        failure = error;
        if (!isEngineError(error) || factsOf(error).retryable !== true) throw error;
      }
      if (received === 0) throw transportError(request, failure);
      at += received;
    }
    return piece;
  }

  /** @param last position of the last byte wanted; undefined: to the end. */
  #request(source: Source, from: number, last: number | undefined, signal: AbortSignal): HttpRequest {
    const validator = this.#partial?.validator;
    // Another server may have marked the same blob in another way.
    const ifRange = validator?.url === source.url ? { 'if-range': validator.etag } : {};
    const range = from > 0 || last !== undefined ? { range: `bytes=${from}-${last ?? ''}`, ...ifRange } : {};
    return {
      method: 'GET',
      url: source.url,
      headers: { ...source.headers, ...range },
      tls: source.tls,
      limits: this.#input.limits,
      signal,
    };
  }

  /** Judges the head of the response. Returns how many of its first bytes are known already. */
  async #bytesToSkip(request: HttpRequest, response: IncomingMessage, from: number): Promise<number> {
    const { digest, sizeBytes } = this.#input;
    const { statusCode, headers } = response;
    if (statusCode !== 200 && statusCode !== 206)
      throw statusError(request, response, await readBody(request, response, MAX_ERROR_BYTES));
    if (statusCode === 200) {
      const length = headers['content-length'];
      if (length !== undefined && Number(length) > sizeBytes) {
        response.destroy();
        throw dataLoss(`layer ${digest} has ${length} bytes where its manifest declares ${sizeBytes}`, {
          code: 'DIGEST_MISMATCH',
        });
      }
      return from;
    }
    const start = /^bytes (\d+)-/.exec(headers['content-range'] ?? '')?.[1];
    if (Number(start) !== from) {
      response.destroy();
      throw transportError(
        request,
        new Error(`asked for bytes from ${from}, got ${headers['content-range'] ?? 'an unknown range'}`),
      );
    }
    return 0;
  }
}
