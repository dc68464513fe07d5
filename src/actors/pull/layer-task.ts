/** The worker task that fetches the blob of one layer from one host and extracts it. */
import { internal, isEngineError } from '../../errors/engine-error.js';
import type { StagedLayer } from '../../ports/storage.js';
import type { Grant, RegistryAccess } from '../../registry/access.js';
import { blobUrl } from '../../registry/client.js';
import type { PartialPlace } from '../../registry/partial-blobs.js';
import { pullScope } from '../../registry/token.js';
import type { FetchLayerOutput, FetchLayerReport } from '../../workers/fetch-layer.js';
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
  readonly staged: StagedLayer;
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
export async function runLayerTask(deps: LayerTaskDeps, task: LayerTask): Promise<FetchLayerOutput> {
  const { access, staged, signal } = task;
  const { blob, diffId } = task.input.layer;
  const grant = await access.grant(pullScope(task.input.repository), signal);
  const limit = await tarLimit(staged.diffDir, blob.sizeBytes);
  const { link, giveBack } = openTaskLink(task, grant);
  try {
    signal.throwIfAborted();
    const output = await deps.pool.run(
      'fetch-layer',
      {
        source: sourceOf(task, grant),
        limits: access.limits,
        digest: blob.digest,
        sizeBytes: blob.sizeBytes,
        diffId,
        maxTarBytes: limit.bytes,
        maxAttempts: deps.maxAttempts(),
        retryDelayMs: deps.retryDelayMs,
        diffDir: staged.diffDir,
        tarSplitPath: staged.tarSplitPath,
        idMaps: staged.idMaps,
        partial: task.partial,
        port: link.port,
      },
      { transferList: [link.port] },
    );
    deps.onReceived?.(blob.sizeBytes);
    return output;
  } catch (error) {
    const isFull = limit.isDisk && isEngineError(error) && error.code === 'LAYER_TOO_LARGE';
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

interface TarLimit {
  readonly bytes: number;
  /** True when the disk sets the limit, and not what an honest layer would need. */
  readonly isDisk: boolean;
}

/** Returns the bytes that the tar of a layer may have. */
async function tarLimit(dir: string, blobBytes: number): Promise<TarLimit> {
  const room = await usableBytes(dir);
  const honest = Math.max(GENEROUS_BYTES, blobBytes * GENEROUS_FACTOR);
  return { bytes: Math.min(room, honest), isDisk: room < honest };
}
