/** The worker tasks that fetch the blob of one layer from one host and extract it. */
import { internal, isEngineError } from '../../errors/engine-error.js';
import type { StagedLayer } from '../../ports/storage.js';
import type { Grant, RegistryAccess } from '../../registry/access.js';
import { blobUrl } from '../../registry/client.js';
import type { PartialPlace } from '../../registry/partial-blobs.js';
import { pullScope } from '../../registry/token.js';
import type { FetchAheadOutput } from '../../workers/fetch-ahead.js';
import type { FetchLayerOutput, FetchLayerReport, LayerSource } from '../../workers/fetch-layer.js';
import type { LayerPlace } from '../../workers/layer-unpacking.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { Source } from '../../workers/task-link.js';
import { openLink, type TransferLink } from '../kit/transfer-link.js';
import type { LayerView } from './layer-view.js';
import type { LayerInput } from './pull.messages.js';
import { usableBytes } from '../../sys/files/usable-bytes.js';

export interface LayerTaskDeps {
  readonly pool: WorkerPool;
  readonly maxAttempts: () => number;
  readonly retryDelayMs: number;
  /** Called with the size of a blob that came whole from a registry. */
  readonly onReceived?: ((bytes: number) => void) | undefined;
}

export interface LayerTask {
  readonly input: LayerInput;
  readonly access: RegistryAccess;
  /** Where the blob's bytes are kept for the next attempt. */
  readonly partial: PartialPlace | undefined;
  readonly show: (view: LayerView) => void;
  readonly signal: AbortSignal;
}

/**
 * A layer may expand to this much, or to so many times the size of its blob, before it counts as an attack. Deflate
 * cannot exceed a factor of 1032. Honest layers that are mostly zeros get near it, but are small.
 */
const GENEROUS_BYTES = 8 * 2 ** 30;
const GENEROUS_FACTOR = 200;

/** Fetches and extracts into the staged layer, which the caller discards after a failure. */
export async function runLayerTask(
  deps: LayerTaskDeps,
  task: LayerTask & { readonly staged: StagedLayer },
): Promise<FetchLayerOutput> {
  const limited = await placeOf(task.staged, task.input.layer.blob);
  const run: RunTask<FetchLayerOutput> = (source, { port }) =>
    deps.pool.run('fetch-layer', { ...source, ...limited.place, partial: task.partial }, { transferList: [port] });
  const output = await runTask(deps, task, run, () => limited);
  deps.onReceived?.(task.input.layer.blob.sizeBytes);
  return output;
}

export interface AheadTask extends LayerTask {
  readonly partial: PartialPlace;
  /** Where the layer goes is known when this resolves; its failure is seen by others. */
  readonly staged: Promise<StagedLayer>;
}

/** Fetches, and extracts what it can: see `FetchAheadOutput`. */
export async function runAheadTask(deps: LayerTaskDeps, task: AheadTask): Promise<FetchAheadOutput> {
  const { partial, staged } = task;
  const { blob } = task.input.layer;
  let limited: LimitedPlace | undefined;
  const run: RunTask<FetchAheadOutput> = (source, link) => {
    const tell = async (): Promise<void> => link.tell((limited = await placeOf(await staged, blob)).place);
    tell().catch(() => undefined);
    return deps.pool.run('fetch-ahead', { ...source, partial }, { transferList: [link.port] });
  };
  const output = await runTask(deps, task, run, () => limited);
  deps.onReceived?.(blob.sizeBytes);
  return output;
}

/** Extracts what that task has left in the file. */
export async function runKeptTask(deps: LayerTaskDeps, task: AheadTask): Promise<FetchLayerOutput> {
  const limited = await placeOf(await task.staged, task.input.layer.blob);
  const { partial } = task;
  const run: RunTask<FetchLayerOutput> = (source, { port }) =>
    deps.pool.run('unpack-kept', { ...source, partial, place: limited.place }, { transferList: [port] });
  return runTask(deps, task, run, () => limited);
}

type RunTask<Output> = (source: LayerSource, link: TransferLink) => Promise<Output>;

/** Runs a task with what every task for a layer needs. */
async function runTask<Output>(
  deps: LayerTaskDeps,
  task: LayerTask,
  run: RunTask<Output>,
  placed: () => LimitedPlace | undefined,
): Promise<Output> {
  const { access, signal } = task;
  const { blob, diffId } = task.input.layer;
  const grant = await access.grant(pullScope(task.input.repository), signal);
  const { link, giveBack } = openTaskLink(task, grant);
  try {
    signal.throwIfAborted();
    const { digest, sizeBytes } = blob;
    const { retryDelayMs } = deps;
    const retries = { maxAttempts: deps.maxAttempts(), retryDelayMs };
    const source = { source: sourceOf(task, grant), limits: access.limits, digest, sizeBytes, diffId, ...retries };
    return await run({ ...source, port: link.port }, link);
  } catch (error) {
    const isFull = placed()?.isDisk === true && isEngineError(error) && error.code === 'LAYER_TOO_LARGE';
    throw isFull ? internal(`layer ${blob.digest}: no space left on device`, { code: 'ENOSPC', cause: error }) : error;
  } finally {
    link.close();
    giveBack();
  }
}

/** Opens the task's link; `giveBack` returns the further connections that the task got over it. */
function openTaskLink(task: LayerTask, grant: Grant): { readonly link: TransferLink; readonly giveBack: () => void } {
  const { input, access, show, signal } = task;
  const endpoint = grant.endpoint.url;
  const extra: (() => void)[] = [];
  const link = openLink<FetchLayerReport>({
    access,
    scope: pullScope(input.repository),
    grant,
    sourceOf: (renewed) => sourceOf(task, renewed),
    signal,
    report: (report) => show({ ...report, endpoint }),
    more: (wanted) => {
      const taken = Array.from({ length: wanted }, () => input.spare?.()).filter((free) => free !== undefined);
      extra.push(...taken);
      return taken.length;
    },
  });
  return {
    link,
    giveBack: () => {
      for (const free of extra) free();
    },
  };
}

function sourceOf({ input }: LayerTask, { endpoint, authorization }: Grant): Source {
  return {
    url: blobUrl(endpoint, input.repository, input.layer.blob.digest),
    headers: authorization === undefined ? {} : { authorization },
    tls: endpoint.tls,
  };
}

interface LimitedPlace {
  readonly place: LayerPlace;
  /** True when the disk sets the limit, and not what an honest layer would need. */
  readonly isDisk: boolean;
}

/** Returns where a layer is unpacked, and how many bytes its tar may have. */
async function placeOf(staged: StagedLayer, blob: { readonly sizeBytes: number }): Promise<LimitedPlace> {
  const { diffDir, tarSplitPath, idMaps } = staged;
  const room = await usableBytes(diffDir);
  const honest = Math.max(GENEROUS_BYTES, blob.sizeBytes * GENEROUS_FACTOR);
  return { place: { diffDir, tarSplitPath, idMaps, maxTarBytes: Math.min(room, honest) }, isDisk: room < honest };
}
