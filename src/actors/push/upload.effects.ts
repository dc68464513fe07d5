/**
 * The upload of one layer: the repository has it already, takes it over from another one, or gets it from a worker,
 * compressed. Files are uploaded here too, as they are.
 */
import { createReadStream } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isEngineError } from '../../errors/engine-error.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { type Grant, type RegistryAccess, withGrant } from '../../registry/access.js';
import type { BlobRecord, BlobRecords } from '../../registry/blob-records.js';
import type { KeptContent } from '../../registry/kept-content.js';
import { factsOf, type FailureFacts } from '../../registry/failure.js';
import type { PulledBlobs } from '../../registry/pulled-blobs.js';
import { type PushedBlob, PUSHED_LAYER_TYPE } from '../../registry/manifest-writer.js';
import { pushScope } from '../../registry/token.js';
import { finishUpload, headBlob, placeOf, sendChunk, startUpload, type UploadState } from '../../registry/upload.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { PushedContent } from '../../workers/pushed-content.js';
import type { PushLayerReport } from '../../workers/push-layer.js';
import { openLink } from '../kit/transfer-link.js';

export interface UploadDeps {
  readonly layers: LayerStore;
  readonly records: BlobRecords;
  /** Undefined when images are not kept as registries have them. */
  readonly kept: KeptContent | undefined;
  /** Blobs of layers as they were pulled. */
  readonly pulled?: Pick<PulledBlobs, 'open' | 'remove'> | undefined;
  readonly pool: WorkerPool;
  readonly retryDelayMs: number;
}

export interface LayerToPush {
  readonly diffId: Digest;
  readonly chainId: Digest;
  /** The kept blob that has to be sent for it; undefined: any blob with these files will do. */
  readonly blob?: PushedBlob | undefined;
}

/** A blob that goes as it is. */
export interface BlobFile extends PushedBlob {
  readonly path: string;
}

export interface UploadTarget {
  readonly access: RegistryAccess;
  /** Name of the registry, such as `docker.io`; `path` is the path of the repository there. */
  readonly domain: string;
  readonly path: string;
}

/** How far an upload is, as readers see it. */
export type UploadView =
  | { readonly phase: 'pushing'; readonly bytes: number }
  | { readonly phase: 'retrying'; readonly seconds: number }
  | { readonly phase: 'exists' | 'pushed' }
  | { readonly phase: 'mounted'; readonly from: string };

/**
 * A registry is asked for at most this many digests before the layer is sent, and to mount from at most this many
 * repositories.
 */
const MAX_CHECKS = 3;
const MAX_MOUNTS = 3;
/** This number is not an option, because `max-download-attempts` is for pulls. */
const MAX_ATTEMPTS = 5;
/** Files are read in such pieces. */
const PIECE_BYTES = 1 << 20;

/** One upload, as the functions below see it. */
interface Upload {
  readonly deps: UploadDeps;
  readonly layer: LayerToPush;
  readonly target: UploadTarget;
  readonly show: (view: UploadView) => void;
  readonly signal: AbortSignal;
}

/** Uploads a layer; resolves when the repository has it. */
export async function uploadLayer(
  deps: UploadDeps,
  layer: LayerToPush,
  target: UploadTarget,
  show: (view: UploadView) => void,
  signal: AbortSignal,
): Promise<PushedBlob> {
  const { records } = deps;
  const repository = `${target.domain}/${target.path}`;
  const upload: Upload = { deps, layer, target, show, signal };
  const { blob: wanted } = layer;
  const all = await records.of(layer.diffId);
  const known = wanted === undefined ? all : [{ ...wanted, repository }, ...all.filter(isOf(wanted))];
  const blob = (await findBlob(upload, known)) ?? (await sendLayer(upload, known));
  await records.add(layer.diffId, { ...blob, repository });
  return blob;
}

const isOf =
  (wanted: PushedBlob) =>
  ({ digest }: BlobRecord): boolean =>
    digest === wanted.digest;

/** A blob that goes as it is; `open` is called for each attempt to send it. */
export interface OpenBlob {
  readonly digest: Digest;
  readonly open: () => AsyncIterable<Buffer>;
}

/** Uploads a file; resolves when the repository has it. What is sent goes from its beginning again when it breaks. */
export function uploadFile(
  deps: Pick<UploadDeps, 'retryDelayMs'>,
  { digest, path }: BlobFile,
  target: UploadTarget,
  show: (view: UploadView) => void,
  signal: AbortSignal,
): Promise<void> {
  const open = (): AsyncIterable<Buffer> => createReadStream(path, { highWaterMark: PIECE_BYTES });
  return uploadBlob(deps, { digest, open }, target, show, signal);
}

/** Does the same for the bytes of any source. */
export async function uploadBlob(
  { retryDelayMs }: Pick<UploadDeps, 'retryDelayMs'>,
  { digest, open }: OpenBlob,
  { access, path }: UploadTarget,
  show: (view: UploadView) => void,
  signal: AbortSignal,
): Promise<void> {
  const patience: Patience = { retryDelayMs, show, signal };
  const options = { limits: access.limits, signal };
  const scope = pushScope(path);
  const known = await persistently(patience, mayAnswerLater, () =>
    withGrant(access, scope, signal, (grant) => headBlob(placeOf(grant, path), digest, options)),
  );
  if (known !== undefined) return show({ phase: 'exists' });
  await sendBlob({ access, path }, digest, open, patience);
  show({ phase: 'pushed' });
}

/** Sends a blob that the repository does not have. `open` is called for each attempt. */
async function sendBlob(
  { access, path }: Pick<UploadTarget, 'access' | 'path'>,
  digest: Digest,
  open: () => AsyncIterable<Buffer>,
  patience: Patience,
): Promise<void> {
  const { signal } = patience;
  const options = { limits: access.limits, signal };
  await persistently(patience, maySucceedLater, () =>
    withGrant(access, pushScope(path), signal, async (grant) => {
      const place = placeOf(grant, path);
      const begun = await startUpload(place, options);
      if (begun === 'mounted') return;
      await finishUpload(place, await sendChunk(place, begun, open(), options), digest, options);
    }),
  );
}

/** Sends the bytes that are kept. */
async function sendKept(
  { deps, target, show, signal }: Upload,
  { digest }: PushedBlob,
  kept: KeptContent,
): Promise<void> {
  const open = async function* (): AsyncGenerator<Buffer> {
    let bytes = 0;
    for await (const chunk of kept.open(digest)) {
      yield chunk;
      show({ phase: 'pushing', bytes: (bytes += chunk.length) });
    }
  };
  await sendBlob(target, digest, open, { retryDelayMs: deps.retryDelayMs, show, signal });
  show({ phase: 'pushed' });
}

interface Patience {
  readonly retryDelayMs: number;
  readonly show: (view: UploadView) => void;
  readonly signal: AbortSignal;
}

/** Asks again while the registry fails in a way that may pass. The worker does the same with the bytes of a layer. */
async function persistently<T>(
  { retryDelayMs, show, signal }: Patience,
  mayPass: (facts: FailureFacts) => boolean,
  ask: () => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await ask();
    } catch (error) {
      if (!mayPass(factsOf(error)) || attempt >= MAX_ATTEMPTS || signal.aborted) throw error;
      show({ phase: 'retrying', seconds: Math.ceil((retryDelayMs * attempt) / 1000) });
      await sleep(retryDelayMs * attempt, undefined, { signal });
    }
  }
}

/** A registry that gives no answer at all is reported at once, because questions come first. */
function mayAnswerLater(facts: FailureFacts): boolean {
  return facts.status !== undefined && maySucceedLater(facts);
}

/** 429 and 503 were waited for already. */
function maySucceedLater({ status, retryable }: FailureFacts): boolean {
  return retryable === true && status !== 429 && status !== 503;
}

async function findBlob(upload: Upload, known: readonly BlobRecord[]): Promise<PushedBlob | undefined> {
  const { show, signal } = upload;
  const { retryDelayMs } = upload.deps;
  const { access, domain, path } = upload.target;
  const here = known.filter(({ repository }) => repository === `${domain}/${path}`);
  const candidates = new Map([...here, ...known].map((record) => [record.digest, record]));
  for (const { digest, mediaType, sizeBytes } of [...candidates.values()].slice(0, MAX_CHECKS)) {
    const found = await persistently({ retryDelayMs, show, signal }, mayAnswerLater, () =>
      withGrant(access, pushScope(path), signal, (grant) =>
        headBlob(placeOf(grant, path), digest, { limits: access.limits, signal }),
      ),
    );
    if (found === undefined) continue;
    show({ phase: 'exists' });
    return { digest, mediaType, sizeBytes };
  }
  return undefined;
}

async function sendLayer(upload: Upload, known: readonly BlobRecord[]): Promise<PushedBlob> {
  const { target, show, signal } = upload;
  const prefix = `${target.domain}/`;
  const elsewhere = known
    .filter(({ repository }) => repository.startsWith(prefix) && repository !== prefix + target.path)
    .slice(0, MAX_MOUNTS);
  let begun: UploadState | undefined;
  for (const record of elsewhere) {
    const from = record.repository.slice(prefix.length);
    const answer = await mount(target, record, from, signal);
    if (answer === 'mounted') {
      show({ phase: 'mounted', from });
      return record;
    }
    begun = answer;
  }
  const { blob: wanted } = upload.layer;
  const { kept } = upload.deps;
  if (wanted && kept) {
    await sendKept(upload, wanted, kept);
    return wanted;
  }
  const blob = (await sendPulled(upload, known, begun)) ?? (await sendCompressed(upload, begun));
  show({ phase: 'pushed' });
  return blob;
}

/** Sends the blob of the layer as it was pulled; undefined when it is not kept, or was damaged. */
async function sendPulled(
  upload: Upload,
  known: readonly BlobRecord[],
  begun: UploadState | undefined,
): Promise<PushedBlob | undefined> {
  const { pulled } = upload.deps;
  const { chainId } = upload.layer;
  const seen = new Map(known.map((record) => [record.digest, record]));
  for (const { digest, mediaType, sizeBytes } of seen.values()) {
    const file = await pulled?.open({ chainId, digest }, sizeBytes);
    if (file === undefined) continue;
    try {
      await runUpload(upload, { kind: 'blob', fd: file.fd, digest }, begun);
      return { digest, mediaType, sizeBytes };
    } catch (error) {
      if (!isEngineError(error) || error.code !== 'BLOB_DAMAGED') throw error;
      await pulled?.remove({ chainId, digest });
      // The task has cancelled its upload.
      return sendCompressed(upload, undefined);
    } finally {
      await file.close();
    }
  }
  return undefined;
}

async function sendCompressed(upload: Upload, begun: UploadState | undefined): Promise<PushedBlob> {
  const { close, ...tar } = upload.deps.layers.openTar(upload.layer.chainId);
  try {
    return { ...(await runUpload(upload, { kind: 'layer', ...tar }, begun)), mediaType: PUSHED_LAYER_TYPE };
  } finally {
    close();
  }
}

/**
 * Asks the registry to mount a layer from another repository. A registry that will not do so begins an upload instead.
 * One that does not know how to mount is asked for an upload later.
 */
async function mount(
  { access, path }: UploadTarget,
  { digest }: BlobRecord,
  from: string,
  signal: AbortSignal,
): Promise<UploadState | 'mounted' | undefined> {
  try {
    return await withGrant(access, pushScope(path, [from]), signal, (grant) =>
      startUpload(placeOf(grant, path), { limits: access.limits, signal }, { digest, from }),
    );
  } catch (error) {
    if (signal.aborted || !isEngineError(error) || error.kind === 'unavailable') throw error;
    return undefined;
  }
}

async function runUpload(
  { deps, target, show, signal }: Upload,
  content: PushedContent,
  begun: UploadState | undefined,
): Promise<{ readonly digest: Digest; readonly sizeBytes: number }> {
  const { pool, retryDelayMs } = deps;
  const { access, path } = target;
  const scope = pushScope(path);
  const grant = await access.grant(scope, signal);
  const sourceOf = (one: Grant): ReturnType<typeof placeOf> => placeOf(one, path);
  const link = openLink<PushLayerReport>({
    access,
    scope,
    grant,
    sourceOf,
    signal,
    report: (report) =>
      show(
        report.type === 'retrying'
          ? { phase: 'retrying', seconds: report.seconds }
          : { phase: 'pushing', bytes: report.bytes },
      ),
  });
  try {
    return await pool.run(
      'push-layer',
      {
        content,
        source: sourceOf(grant),
        limits: access.limits,
        upload: begun,
        maxAttempts: MAX_ATTEMPTS,
        retryDelayMs,
        port: link.port,
      },
      { transferList: [link.port] },
    );
  } finally {
    link.close();
  }
}
