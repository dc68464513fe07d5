/**
 * The work behind a layer's transfer: a worker fetches and extracts, the layer store commits on top of the layer below.
 */
import { statfs } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { cancelled, dataLoss, internal, isEngineError } from '../../errors/engine-error.js';
import type { Digest, LayerStore, StagedLayer } from '../../ports/storage.js';
import type { Grant, RegistryAccess } from '../../registry/access.js';
import { blobUrl } from '../../registry/client.js';
import type { Credentials } from '../../registry/credentials.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import {
  isFaultOfContent,
  type PartialBlobs,
  type PartialClaim,
  type PartialPlace,
} from '../../registry/partial-blobs.js';
import { pullScope } from '../../registry/token.js';
import type { FetchLayerOutput, FetchLayerReport } from '../../workers/fetch-layer.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { Source } from '../../workers/task-link.js';
import { openLink, type Progress } from '../kit/transfer-link.js';
import type { LayerEffects } from './layer.machine.js';
import type { LayerInput, LayerView } from './pull.messages.js';
import { Slots } from '../kit/slots.js';

export interface LayerEffectDeps {
  readonly layers: LayerStore;
  readonly partials: PartialBlobs;
  readonly pool: WorkerPool;
  readonly access: (host: RegistryHost, credentials: Credentials | undefined) => RegistryAccess;
  /** Replaces what readers see of a transfer. */
  readonly publish: (chainId: Digest, view: LayerView) => void;
  readonly maxAttempts: () => number;
  /** Layers of all pulls that are fetched at a time: as many tasks as the pool can run. */
  readonly maxTransfers: number;
  readonly retryDelayMs: number;
  /** Bytes of a blob that came from a registry, complete. */
  readonly onReceived?: ((bytes: number) => void) | undefined;
}

/** Left free on the file system: this much, or this part of a small one. */
const RESERVED_BYTES = 64 << 20;
const RESERVED_PART = 1 / 20;
/**
 * A layer may expand to this much, or to so many times its blob, before it counts as an attack. Deflate cannot exceed a
 * factor of 1032; honest layers that are mostly zeros get near it, but are small.
 */
const GENEROUS_BYTES = 8 * 2 ** 30;
const GENEROUS_FACTOR = 200;

interface Fetched {
  readonly staged: StagedLayer;
  readonly output: FetchLayerOutput;
}

/** One transfer, from its begin until its reference on the layer is given back. */
interface Transfer {
  readonly abort: AbortController;
  done: Promise<void>;
  /** It has put the layer into the store and holds a reference on it. */
  hasReference: boolean;
  /** Its actor has crashed: nobody will give the reference back. */
  isAbandoned: boolean;
}

/** How long a transfer waits for the end of the one before it, whose actor has crashed. */
const PREDECESSOR_LIMIT_MS = 30_000;

export class LayerTransfers implements LayerEffects {
  readonly #deps: LayerEffectDeps;
  /** The newest transfer of each chain ID: a layer above waits for it. */
  readonly #transfers = new Map<Digest, Transfer>();

  readonly #slots: Slots;

  constructor(deps: LayerEffectDeps) {
    this.#deps = deps;
    this.#slots = new Slots(deps.maxTransfers);
  }

  transfer(input: LayerInput): Promise<void> {
    const { chainId } = input.layer;
    const transfer: Transfer = {
      abort: new AbortController(),
      done: Promise.resolve(),
      hasReference: false,
      isAbandoned: false,
    };
    transfer.done = this.#run(input, transfer, this.#transfers.get(chainId));
    this.#transfers.set(chainId, transfer);
    return transfer.done;
  }

  cancel(chainId: Digest): void {
    this.#transfers.get(chainId)?.abort.abort(cancelled('the layer is not wanted any more'));
  }

  /** Gives the transfer's own reference back, if it is still there. */
  async release(chainId: Digest): Promise<void> {
    const transfer = this.#transfers.get(chainId);
    if (!transfer?.hasReference) return;
    transfer.hasReference = false;
    this.#transfers.delete(chainId);
    await this.#deps.layers.release(chainId);
  }

  /** For an actor that has crashed: ends its transfer, which keeps no reference then. */
  async abandon(chainId: Digest): Promise<void> {
    const transfer = this.#transfers.get(chainId);
    if (!transfer) return;
    transfer.isAbandoned = true;
    this.cancel(chainId);
    await this.release(chainId);
  }

  async #run(input: LayerInput, transfer: Transfer, before: Transfer | undefined): Promise<void> {
    const { layers } = this.#deps;
    const { chainId } = input.layer;
    const { signal } = transfer.abort;
    try {
      if (before) await settledOrLate(before.done, signal);
      await this.#transfer(input, signal);
      // It may have come too late to be cancelled.
      if (transfer.isAbandoned) await layers.release(chainId);
      else transfer.hasReference = true;
    } finally {
      if (!transfer.hasReference && this.#transfers.get(chainId) === transfer) this.#transfers.delete(chainId);
    }
  }

  async #transfer(input: LayerInput, signal: AbortSignal): Promise<void> {
    const { layers, partials, publish } = this.#deps;
    const { chainId, diffId, parent, blob } = input.layer;
    const claim = await partials.claim(blob.digest, blob.sizeBytes);
    try {
      const { staged, output } = await this.#fetchFromAny(input, claim, signal);
      try {
        publish(chainId, { phase: 'extracted' });
        if (parent !== undefined) await this.#below(parent, signal);
        signal.throwIfAborted();
        const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = output;
        await staged.commit({ diffId, parent, sizeBytes, implicitDirs, danglingLinks, whiteouts });
      } catch (error) {
        await staged.discard();
        throw error;
      }
    } catch (error) {
      // Where there is no room, what is kept would leave none for anything else.
      if (isEngineError(error) && error.code === 'ENOSPC') await claim?.discard();
      else claim?.keep();
      throw error;
    }
    layers.retain(chainId);
    await claim?.discard();
  }

  /** Waits until the layer below is in the store. */
  async #below(parent: Digest, signal: AbortSignal): Promise<void> {
    const below = this.#transfers.get(parent)?.done;
    if (below) await orAborted(below, signal);
    if (!this.#deps.layers.find(parent))
      throw dataLoss(`layer ${parent} is missing below a fetched layer`, { code: 'LAYER_MISSING' });
  }

  /** A mirror that fails in the middle is left for the next host. */
  async #fetchFromAny(input: LayerInput, claim: PartialClaim | undefined, signal: AbortSignal): Promise<Fetched> {
    for (const host of input.hosts) {
      try {
        return await this.#fetchFrom(input, host, claim, signal);
      } catch (error) {
        if (!host.isMirror || signal.aborted) throw error;
      }
    }
    throw dataLoss(`no host to fetch layer ${input.layer.blob.digest} from`, { code: 'NO_HOST' });
  }

  async #fetchFrom(
    input: LayerInput,
    host: RegistryHost,
    claim: PartialClaim | undefined,
    signal: AbortSignal,
  ): Promise<Fetched> {
    try {
      return await this.#fetchStaged(input, host, claim, signal);
    } catch (error) {
      // The bytes that were kept are worth nothing then; if they came from an earlier pull, they may be the reason.
      if (isFaultOfContent(error)) await claim?.reset();
      if (!isEngineError(error) || error.code !== 'PARTIAL_DAMAGED') throw error;
      return this.#fetchStaged(input, host, claim, signal);
    }
  }

  async #fetchStaged(
    input: LayerInput,
    host: RegistryHost,
    claim: PartialClaim | undefined,
    signal: AbortSignal,
  ): Promise<Fetched> {
    const staged = await this.#deps.layers.stage();
    try {
      return { staged, output: await this.#fetch(input, host, claim?.place, staged, signal) };
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  async #fetch(
    input: LayerInput,
    host: RegistryHost,
    partial: PartialPlace | undefined,
    staged: StagedLayer,
    signal: AbortSignal,
  ): Promise<FetchLayerOutput> {
    // Waiting here and not in the pool, where nothing would hear of a cancel.
    const free = await this.#slots.take(signal);
    try {
      return await this.#runTask(input, host, partial, staged, signal);
    } finally {
      free();
    }
  }

  async #runTask(
    input: LayerInput,
    host: RegistryHost,
    partial: PartialPlace | undefined,
    staged: StagedLayer,
    signal: AbortSignal,
  ): Promise<FetchLayerOutput> {
    const { pool, retryDelayMs, maxAttempts } = this.#deps;
    const { layer, repository, credentials } = input;
    const access = this.#deps.access(host, host.isMirror ? undefined : credentials);
    const scope = pullScope(repository);
    const grant = await access.grant(scope, signal);
    const sourceOf = ({ endpoint, authorization }: Grant): Source => ({
      url: blobUrl(endpoint, repository, layer.blob.digest),
      headers: authorization === undefined ? {} : { authorization },
      tls: endpoint.tls,
    });
    const extra: (() => void)[] = [];
    const link = openLink<FetchLayerReport>({
      access,
      scope,
      grant,
      sourceOf,
      signal,
      report: (report) => this.#publish(layer.chainId, grant.endpoint.url, report),
      more: (wanted) => {
        const taken = Array.from({ length: wanted }, () => input.spare?.()).filter((free) => free !== undefined);
        extra.push(...taken);
        return taken.length;
      },
    });
    const limit = await tarLimit(staged.diffDir, layer.blob.sizeBytes);
    try {
      signal.throwIfAborted();
      const output = await pool.run(
        'fetch-layer',
        {
          source: sourceOf(grant),
          limits: access.limits,
          digest: layer.blob.digest,
          sizeBytes: layer.blob.sizeBytes,
          diffId: layer.diffId,
          maxTarBytes: limit.bytes,
          maxAttempts: maxAttempts(),
          retryDelayMs,
          diffDir: staged.diffDir,
          tarSplitPath: staged.tarSplitPath,
          idMaps: staged.idMaps,
          partial,
          port: link.port,
        },
        { transferList: [link.port] },
      );
      this.#deps.onReceived?.(layer.blob.sizeBytes);
      return output;
    } catch (error) {
      const isFull = limit.isDisk && isEngineError(error) && error.code === 'LAYER_TOO_LARGE';
      throw isFull
        ? internal(`layer ${layer.blob.digest}: no space left on device`, { code: 'ENOSPC', cause: error })
        : error;
    } finally {
      link.close();
      for (const free of extra) free();
    }
  }

  #publish(chainId: Digest, endpoint: string, report: FetchLayerReport | Progress): void {
    const { publish } = this.#deps;
    switch (report.type) {
      case 'started':
        return;
      case 'verifying':
        return publish(chainId, { phase: 'verifying' });
      case 'retrying':
        return publish(chainId, { phase: 'retrying', seconds: report.seconds, reason: report.reason, endpoint });
      case 'downloading':
        return publish(chainId, { phase: 'downloading', bytes: report.bytes, endpoint });
      case 'extracting':
        return publish(chainId, { phase: 'extracting', bytes: report.bytes });
    }
  }
}

interface TarLimit {
  readonly bytes: number;
  /** True when the disk sets the limit, and not what an honest layer would need. */
  readonly isDisk: boolean;
}

/** Bytes that the tar of a layer may have. */
async function tarLimit(dir: string, blobBytes: number): Promise<TarLimit> {
  const { bavail, blocks, bsize } = await statfs(dir);
  const room = Math.max(0, bavail * bsize - Math.min(RESERVED_BYTES, blocks * bsize * RESERVED_PART));
  const honest = Math.max(GENEROUS_BYTES, blobBytes * GENEROUS_FACTOR);
  return { bytes: Math.min(room, honest), isDisk: room < honest };
}

/** Resolves when a transfer has ended, however it went, or when it takes too long; rejects when this one is aborted. */
async function settledOrLate(transfer: Promise<void>, signal: AbortSignal): Promise<void> {
  const over = new AbortController();
  const late = sleep(PREDECESSOR_LIMIT_MS, undefined, { signal: over.signal, ref: false });
  try {
    await orAborted(
      Promise.race([transfer, late]).catch(() => undefined),
      signal,
    );
  } finally {
    over.abort();
  }
}

function orAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
