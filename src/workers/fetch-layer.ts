/**
 * Task: one layer from the registry into its directory, in a single pass. The blob streams through sha256, decompression,
 * a second sha256 and extraction; nothing is kept on disk in between. A broken download goes on with a range request,
 * because the states of both hashes, of the inflater and of the extractor are still here.
 */
import { createHash, type Hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { cancelled, dataLoss, type EngineError, internal, isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { factsOf, type FailureFacts, statusError, transportError } from '../registry/failure.js';
import { type HttpLimits, type HttpRequest, readBody, sendRequest, type TlsSettings } from '../registry/http.js';
import { type ExtractResult, LayerExtractor } from '../storage/tar/layer-extractor.js';
import { createDecompressor, type Decompressor } from './decompress.js';
import { type Outcome, unwrap } from './outcome.js';
import { bufferDied } from './young-collector.js';

/** Where the blob is and what to present there; the main thread sends another when this one is refused. */
export interface LayerSource {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsSettings;
}

export interface FetchLayerInput {
  readonly source: LayerSource;
  readonly limits: HttpLimits;
  /** Of the blob, as the manifest declares it. */
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Of the plain tar, as the image configuration declares it. */
  readonly diffId: Digest;
  /** A layer whose plain tar is longer is refused, so that a small blob cannot fill the disk. */
  readonly maxTarBytes: number;
  readonly maxAttempts: number;
  /** The n-th retry waits n times this long. */
  readonly retryDelayMs: number;
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly port: MessagePort;
}

export type FetchLayerOutput = ExtractResult;

/** From the task to the main thread. */
export type FetchLayerReport =
  | { readonly type: 'started' | 'verifying' }
  /** Bytes of the blob; `extracting` begins when the whole blob has the right digest. */
  | { readonly type: 'downloading' | 'extracting'; readonly bytes: number }
  | { readonly type: 'retrying'; readonly seconds: number }
  /** The registry refused the source or wants to be left alone: the answer is a new source or the error to end with. */
  | { readonly type: 'refused'; readonly error: Outcome };

/** From the main thread to the task. `source` holds an `Outcome` of a LayerSource. */
export type FetchLayerOrder = { readonly type: 'cancel' } | { readonly type: 'source'; readonly source: Outcome };

const REPORT_INTERVAL_MS = 100;
const MAX_ERROR_BYTES = 64 << 10;
const SECOND_MS = 1000;

/** Refused sources in a row, without a byte in between, before the task gives up. */
const MAX_REFUSALS = 5;

/**
 * Fetches and extracts. Throws `data-loss` for a wrong digest, size or stream, `cancelled` on order, the registry's errors
 * when its attempts are spent, and the extractor's errors. The caller deletes what was extracted so far.
 */
export async function fetchLayer(input: FetchLayerInput): Promise<FetchLayerOutput> {
  const link = new Link(input.port);
  const sink = new LayerSink(input);
  try {
    link.report({ type: 'started' });
    await download(input, link, sink);
    link.report({ type: 'downloading', bytes: sink.blobBytes });
    link.report({ type: 'verifying' });
    sink.verify();
    link.report({ type: 'extracting', bytes: sink.blobBytes });
    return await sink.finish();
  } catch (error) {
    sink.destroy();
    throw link.signal.aborted ? cancelled('the layer is not wanted any more') : error;
  } finally {
    input.port.close();
  }
}

/** The conversation with the main thread. */
class Link {
  readonly #abort = new AbortController();
  readonly #port: MessagePort;
  #onSource: ((source: Outcome) => void) | undefined;
  #lastReport = 0;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (order: FetchLayerOrder) => this.#take(order));
    // Orders that came while the task was queued are waiting already.
    for (let queued = receiveMessageOnPort(port); queued; queued = receiveMessageOnPort(port)) this.#take(queued.message as FetchLayerOrder);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  report(report: FetchLayerReport): void {
    this.#port.postMessage(report, []);
  }

  /** Reports at most ten times a second. */
  progress(bytes: number): void {
    const now = performance.now();
    if (now - this.#lastReport < REPORT_INTERVAL_MS) return;
    this.#lastReport = now;
    this.report({ type: 'downloading', bytes });
  }

  /** Asks for another source. Rejects with the error that the main thread chose. */
  async replace(failed: Outcome): Promise<LayerSource> {
    const answer = new Promise<Outcome>((resolve, reject) => {
      this.#onSource = resolve;
      this.signal.addEventListener('abort', () => reject(this.signal.reason), { once: true });
    });
    this.report({ type: 'refused', error: failed });
    return unwrap(await answer) as LayerSource;
  }

  async pause(ms: number): Promise<void> {
    const until = performance.now() + ms;
    for (let left = ms; left > 0; left = until - performance.now()) {
      this.report({ type: 'retrying', seconds: Math.ceil(left / SECOND_MS) });
      await this.#sleep(Math.min(left, SECOND_MS));
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        clearTimeout(timer);
        reject(this.signal.reason);
      };
      const timer = setTimeout(() => {
        this.signal.removeEventListener('abort', onAbort);
        resolve();
      }, ms);
      this.signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  #take(order: FetchLayerOrder): void {
    if (order.type === 'cancel') this.#abort.abort(cancelled('the layer is not wanted any more'));
    else this.#onSource?.(order.source);
  }
}

/** Everything behind the network: both hashes, the inflater and the extractor, and the limits on them. */
class LayerSink {
  readonly #input: FetchLayerInput;
  readonly #blobHash: Hash = createHash('sha256');
  readonly #tarHash: Hash = createHash('sha256');
  readonly #extractor: LayerExtractor;
  readonly #decompressor: Decompressor;
  #blobBytes = 0;
  /** Why extraction stopped. The download goes on, for only its digest tells whether the image or the registry is at fault. */
  #failure: EngineError | undefined;

  constructor(input: FetchLayerInput) {
    this.#input = input;
    this.#extractor = new LayerExtractor({ diffDir: input.diffDir, tarSplitPath: input.tarSplitPath, limitBytes: input.maxTarBytes });
    this.#decompressor = createDecompressor((chunk) => this.#extract(chunk));
  }

  /** Compressed bytes taken so far: where a resumed download begins. */
  get blobBytes(): number {
    return this.#blobBytes;
  }

  async write(chunk: Buffer): Promise<void> {
    this.#blobBytes += chunk.length;
    if (this.#blobBytes > this.#input.sizeBytes) throw damaged(`the layer is longer than the ${this.#input.sizeBytes} bytes that its manifest declares`, this.#input);
    this.#blobHash.update(chunk);
    bufferDied(chunk.length);
    if (this.#failure) return;
    try {
      await this.#decompressor.write(chunk);
    } catch (error) {
      if (!isFaultOfContent(error)) throw error;
      this.#failure = error;
    }
  }

  /** Judges the blob once it is complete. */
  verify(): void {
    const { digest } = this.#input;
    if (this.#blobHash.digest('hex') !== digest.slice(7)) throw damaged(`filesystem layer verification failed for digest ${digest}`, this.#input);
  }

  /** Extracts what is still in the inflater and judges the tar. */
  async finish(): Promise<FetchLayerOutput> {
    const { digest, diffId } = this.#input;
    if (this.#failure) throw this.#failure;
    await this.#decompressor.end();
    if (this.#tarHash.digest('hex') !== diffId.slice(7)) throw damaged(`layer ${digest} does not have the diff ID ${diffId} of its image configuration`, this.#input);
    return this.#extractor.finish();
  }

  destroy(): void {
    this.#decompressor.destroy();
    this.#extractor.abort();
  }

  #extract(chunk: Buffer): void {
    this.#tarHash.update(chunk);
    this.#extractor.write(chunk);
    bufferDied(chunk.length);
  }
}

/** True for bytes that cannot be a layer, as opposed to limits and to the host's own troubles. */
function isFaultOfContent(error: unknown): error is EngineError {
  return isEngineError(error) && error.code !== 'LAYER_TOO_LARGE' && (error.kind === 'invalid' || error.kind === 'data-loss');
}

function damaged(message: string, { digest }: FetchLayerInput): EngineError {
  return dataLoss(message, { code: 'DIGEST_MISMATCH', details: { digest } });
}

/** Downloads until the sink has every byte, with retries, renewed credentials and ranges. */
async function download(input: FetchLayerInput, link: Link, sink: LayerSink): Promise<void> {
  let source = input.source;
  let failures = 0;
  let refusals = 0;
  while (sink.blobBytes < input.sizeBytes) {
    const before = sink.blobBytes;
    try {
      await downloadOnce(source, input, link, sink);
    } catch (error) {
      const facts = factsOf(error);
      if (link.signal.aborted) throw error;
      if (sink.blobBytes > before) refusals = 0;
      if (isRefusal(facts) && refusals++ < MAX_REFUSALS) {
        source = await link.replace(outcomeOf(error));
      } else if (facts.retryable && ++failures < input.maxAttempts) {
        await link.pause(input.retryDelayMs * failures);
      } else {
        throw error;
      }
    }
  }
}

/** Refusals are settled by the main thread, which knows the credentials and what other pulls were told. */
function isRefusal({ status }: FailureFacts): boolean {
  return status === 401 || status === 429 || status === 503;
}

function outcomeOf(error: unknown): Outcome {
  const { kind, message, code, details, stack } = error as EngineError;
  return { ok: false, kind, message, code, details, stack };
}

async function downloadOnce(source: LayerSource, input: FetchLayerInput, link: Link, sink: LayerSink): Promise<void> {
  const from = sink.blobBytes;
  const request: HttpRequest = {
    method: 'GET',
    url: source.url,
    headers: { ...source.headers, ...(from > 0 ? { range: `bytes=${from}-` } : {}) },
    tls: source.tls,
    limits: input.limits,
    signal: link.signal,
  };
  const response = await sendRequest(request);
  let skip = await bytesToSkip(request, response, from, input);
  let isSinkFailing = false;
  try {
    for await (const received of response as AsyncIterable<Buffer>) {
      // A server without ranges starts over: what is known already is passed by.
      const chunk = skip > 0 ? received.subarray(Math.min(skip, received.length)) : received;
      skip -= received.length - chunk.length;
      if (chunk.length === 0) continue;
      isSinkFailing = true;
      await sink.write(chunk);
      isSinkFailing = false;
      link.progress(sink.blobBytes);
    }
  } catch (error) {
    throw isSinkFailing ? error : transportError(request, error);
  } finally {
    response.destroy();
  }
  if (sink.blobBytes < input.sizeBytes) {
    throw internal(`unexpected EOF: layer ${input.digest} ended after ${sink.blobBytes} of ${input.sizeBytes} bytes`, {
      code: 'LAYER_TRUNCATED',
      details: { retryable: true },
    });
  }
}

/** Judges the head of the response: how many of its first bytes are known already. */
async function bytesToSkip(request: HttpRequest, response: IncomingMessage, from: number, { sizeBytes, digest }: FetchLayerInput): Promise<number> {
  const { statusCode, headers } = response;
  if (statusCode !== 200 && statusCode !== 206) throw statusError(request, response, await readBody(request, response, MAX_ERROR_BYTES));
  if (statusCode === 200) {
    const length = headers['content-length'];
    if (length !== undefined && Number(length) > sizeBytes) {
      response.destroy();
      throw dataLoss(`layer ${digest} has ${length} bytes where its manifest declares ${sizeBytes}`, { code: 'DIGEST_MISMATCH' });
    }
    return from;
  }
  const start = /^bytes (\d+)-/.exec(headers['content-range'] ?? '')?.[1];
  if (Number(start) !== from) {
    response.destroy();
    throw transportError(request, new Error(`asked for bytes from ${from}, got ${headers['content-range'] ?? 'an unknown range'}`));
  }
  return 0;
}
