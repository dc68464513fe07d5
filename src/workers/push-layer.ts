/**
 * Task: one layer to the registry. The blob is sent as it was pulled, where it is kept. Else the tar is rebuilt from
 * the layer's directory, compressed and sent in a single pass; nothing is kept on disk in between. A broken upload goes
 * on where the registry says that it stands: the bytes before are made again, as equal input always gives equal bytes,
 * and not sent.
 */
import type { MessagePort } from 'node:worker_threads';
import { cancelled, dataLoss, isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import type { HttpLimits } from '../registry/http.js';
import {
  cancelUpload,
  finishUpload,
  type RepositoryPlace,
  sendChunk,
  startUpload,
  type UploadState,
  uploadState,
} from '../registry/upload.js';
import { type Bytes, openContent, type PushedContent, type SentBlob } from './pushed-content.js';
import { type RetryPolicy, type Source, TaskLink } from './task-link.js';

export interface PushLayerInput extends RetryPolicy {
  /** The repository: `https://host/v2/<repository>/`. */
  readonly source: Source;
  readonly limits: HttpLimits;
  readonly content: PushedContent;
  /** An upload that was begun already. */
  readonly upload: UploadState | undefined;
  readonly port: MessagePort;
}

export interface PushLayerOutput {
  readonly digest: Digest;
  readonly sizeBytes: number;
}

/** Progress in bytes of the plain tar, or of the blob when it is sent as it was pulled. */
export type PushLayerReport = { readonly type: 'pushing'; readonly bytes: number };

/** A blob up to this size goes in one request. */
const SMALL_BYTES = 1 << 20;
/** Requests of a resumed upload: what is sent again, at most, when it breaks once more. */
const CHUNK_BYTES = 8 << 20;
const CANCEL_LIMITS: HttpLimits = { connectMs: 2000, responseMs: 2000, idleMs: 2000 };

/**
 * Uploads. Throws `data-loss` for a layer or a blob that was changed on disk, `cancelled` on order, and the registry's
 * errors when its attempts are spent.
 */
export async function pushLayer(input: PushLayerInput): Promise<PushLayerOutput> {
  const link = new TaskLink<PushLayerReport>(input.port);
  const push = new LayerPush(input, link);
  try {
    return await link.persist(
      input.source,
      input,
      () => push.position,
      (source) => push.attempt(source),
    );
  } catch (error) {
    await push.abandon();
    throw link.signal.aborted ? cancelled('the layer is not wanted any more') : error;
  } finally {
    link.close();
  }
}

class LayerPush {
  readonly #input: PushLayerInput;
  readonly #link: TaskLink<PushLayerReport>;
  #place: RepositoryPlace;
  #upload: UploadState | undefined;
  #isResumed = false;
  /** The most bytes that the registry was known to have. */
  #acknowledged = 0;
  #shownBytes = 0;

  constructor(input: PushLayerInput, link: TaskLink<PushLayerReport>) {
    this.#input = input;
    this.#link = link;
    this.#place = input.source;
    this.#upload = input.upload;
  }

  get position(): number {
    return this.#acknowledged;
  }

  async attempt(place: RepositoryPlace): Promise<PushLayerOutput> {
    this.#place = place;
    const upload = await this.#begin();
    const blob = openContent(this.#input.content, (bytes) => this.#show(bytes));
    const bytes = blob.bytes();
    try {
      const isFresh = upload.offset === 0;
      const head = isFresh ? await take(bytes, SMALL_BYTES) : await skip(bytes, upload.offset);
      if (blob.isComplete && isFresh) {
        await finishUpload(place, upload, blob.digest, this.#options, head);
      } else {
        const last = isFresh
          ? await this.#stream(upload, head, bytes)
          : await this.#sendChunks(upload, head, bytes, blob);
        await finishUpload(place, last, blob.digest, this.#options);
      }
      return { digest: blob.digest, sizeBytes: blob.sizeBytes };
    } catch (error) {
      // The registry has other bytes than we have: from the beginning, then.
      if (isEngineError(error) && error.details['registryCode'] === 'DIGEST_INVALID') this.#upload = undefined;
      throw error;
    } finally {
      await bytes.return();
    }
  }

  /** Returns the upload to go on with. */
  async #begin(): Promise<UploadState> {
    const known = this.#upload;
    // One that was begun for us has nothing yet.
    const state = known && this.#isResumed ? await uploadState(this.#place, known, this.#options) : known;
    this.#isResumed = true;
    this.#upload = state ?? (await this.#start());
    this.#acknowledged = Math.max(this.#acknowledged, this.#upload.offset);
    return this.#upload;
  }

  async #start(): Promise<UploadState> {
    const started = await startUpload(this.#place, this.#options);
    if (started === 'mounted')
      throw dataLoss('the registry mounted a blob that it was not asked for', { code: 'BAD_UPLOAD' });
    return started;
  }

  async #stream(upload: UploadState, head: Buffer, rest: Bytes): Promise<UploadState> {
    async function* all(): AsyncGenerator<Buffer> {
      yield head;
      for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
    }
    return (this.#upload = await sendChunk(this.#place, upload, all(), this.#options));
  }

  async #sendChunks(upload: UploadState, head: Buffer, rest: Bytes, blob: SentBlob): Promise<UploadState> {
    let state = upload;
    for (let chunk = head; ;) {
      const more = await take(rest, Math.max(0, CHUNK_BYTES - chunk.length));
      chunk = Buffer.concat([chunk, more]);
      if (chunk.length > 0) {
        const offset = state.offset + chunk.length;
        state = { ...(await sendChunk(this.#place, state, chunk, this.#options)), offset };
        this.#upload = state;
        this.#acknowledged = offset;
      }
      if (blob.isComplete) return state;
      chunk = Buffer.alloc(0);
    }
  }

  get #options(): { readonly limits: HttpLimits; readonly signal: AbortSignal } {
    return { limits: this.#input.limits, signal: this.#link.signal };
  }

  /** Reports progress, which never goes back, though a resumed upload makes the first bytes again. */
  #show(bytes: number): void {
    if (bytes <= this.#shownBytes) return;
    this.#shownBytes = bytes;
    this.#link.progress({ type: 'pushing', bytes });
  }

  /** Cancels the upload, so that the registry need not keep it. */
  async abandon(): Promise<void> {
    if (!this.#upload) return;
    // Registries clear it away in time themselves.
    await cancelUpload(this.#place, this.#upload, { limits: CANCEL_LIMITS }).catch(() => undefined);
  }
}

/** Reads at least `count` bytes, or to the end. */
async function take(source: Bytes, count: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  while (length < count) {
    const next = await source.next();
    if (next.done === true) break;
    pieces.push(next.value);
    length += next.value.length;
  }
  return Buffer.concat(pieces, length);
}

/** Skips `count` bytes. Returns what was read beyond them. */
async function skip(source: Bytes, count: number): Promise<Buffer> {
  for (let left = count; left > 0;) {
    const next = await source.next();
    if (next.done === true) break;
    if (next.value.length > left) return next.value.subarray(left);
    left -= next.value.length;
  }
  return Buffer.alloc(0);
}
