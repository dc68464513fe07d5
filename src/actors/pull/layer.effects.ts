/**
 * The transfer of one layer: a worker fetches and extracts it, the layer store commits it on top of the layer below.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { dataLoss, isEngineError } from '../../errors/engine-error.js';
import type { Digest, LayerStore, StagedLayer } from '../../ports/storage.js';
import type { RegistryAccess } from '../../registry/access.js';
import type { Credentials } from '../../registry/credentials.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import type { KeptContent } from '../../registry/kept-content.js';
import type { PulledBlobs } from '../../registry/pulled-blobs.js';
import { isFaultOfContent, type PartialBlobs, type PartialClaim } from '../../registry/partial-blobs.js';
import type { FetchLayerOutput } from '../../workers/fetch-layer.js';
import { Slots } from '../kit/slots.js';
import { type AheadTask, type LayerTaskDeps, runAheadTask, runKeptTask, runLayerTask } from './layer-task.js';
import type { LayerView } from './layer-view.js';
import type { LayerInput } from './pull.messages.js';

export interface LayerEffectDeps extends LayerTaskDeps {
  readonly layers: LayerStore;
  readonly partials: PartialBlobs;
  /** Gets the blobs of fetched layers; undefined: nobody wants them. */
  readonly kept: Pick<KeptContent, 'keepLayer'> | undefined;
  /** Gets the blobs of layers that are in the store; undefined: nobody wants them. */
  readonly pulled?: Pick<PulledBlobs, 'keep'> | undefined;
  readonly access: (host: RegistryHost, credentials: Credentials | undefined) => RegistryAccess;
  /** Replaces what readers see of a transfer. */
  readonly publish: (chainId: Digest, view: LayerView) => void;
  /** So many layers of all pulls are fetched at a time: the pool can run more tasks than that. */
  readonly maxTransfers: number;
}

interface Fetched {
  readonly staged: StagedLayer;
  readonly output: FetchLayerOutput;
}

interface Transfer {
  readonly ended: Promise<void>;
  /** Aborted when nobody wants it any more. */
  readonly signal: AbortSignal;
}

/** Says that the layer below cannot be had: no other host can help, and the bytes of this layer are not at fault. */
class BelowFailed {
  constructor(readonly reason: unknown) {}
}

/** How long a transfer waits for the end of the one before it, which was given up. */
const PREDECESSOR_LIMIT_MS = 30_000;

export class LayerTransfers {
  readonly #deps: LayerEffectDeps;
  /** The newest transfer of each chain ID; the transfer of a layer above waits for it. */
  readonly #newest = new Map<Digest, Transfer>();
  readonly #slots: Slots;
  /** Slots for layers whose blob is whole, and which need no network any more. */
  readonly #keptSlots: Slots;

  constructor(deps: LayerEffectDeps) {
    this.#deps = deps;
    this.#slots = new Slots(deps.maxTransfers);
    this.#keptSlots = new Slots(deps.maxTransfers);
  }

  /** Brings a layer into the store and takes one reference on it. Rejects after it has cleaned up. */
  async transfer(input: LayerInput, signal: AbortSignal): Promise<void> {
    const { chainId } = input.layer;
    const transfer = { ended: this.#run(input, this.#newest.get(chainId)?.ended, signal), signal };
    this.#newest.set(chainId, transfer);
    try {
      await transfer.ended;
    } finally {
      if (this.#newest.get(chainId) === transfer) this.#newest.delete(chainId);
    }
  }

  async #run(input: LayerInput, before: Promise<void> | undefined, signal: AbortSignal): Promise<void> {
    const { layers, partials, kept, pulled } = this.#deps;
    const { chainId, diffId, blob } = input.layer;
    if (before) await settledOrLate(before, signal);
    const claim = await partials.claim(blob.digest, blob.sizeBytes);
    let keeping: Promise<void> | undefined;
    try {
      const fetched = await this.#fetch(input, claim, signal);
      keeping = claim && kept?.keepLayer(blob, diffId, claim.place.path);
      await this.#commit(input, fetched, signal);
    } catch (error) {
      await keeping;
      // The disk is full: bytes that are kept for the next attempt would leave no room for anything else.
      if (isEngineError(error) && error.code === 'ENOSPC') await claim?.discard();
      else claim?.keep();
      throw error;
    }
    layers.retain(chainId);
    await keeping;
    if (claim) await pulled?.keep({ chainId, digest: blob.digest }, blob.sizeBytes, claim.place.path);
    await claim?.discard();
  }

  /** Fetches from the first host that can. A mirror that fails in the middle is left for the next host. */
  async #fetch(input: LayerInput, claim: PartialClaim | undefined, signal: AbortSignal): Promise<Fetched> {
    const hosts = [...input.hosts];
    let isSecondTry = false;
    for (let host = hosts.shift(); host; host = hosts.shift()) {
      try {
        return await this.#fetchFrom(host, input, claim, signal);
      } catch (error) {
        if (error instanceof BelowFailed) throw error.reason;
        // The kept bytes are worthless then. If they came from an earlier pull, they may be the reason.
        if (isFaultOfContent(error)) await claim?.reset();
        if (!isSecondTry && isEngineError(error) && error.code === 'PARTIAL_DAMAGED') hosts.unshift(host);
        else if (!host.isMirror || signal.aborted) throw error;
        isSecondTry = hosts[0] === host;
      }
    }
    throw dataLoss(`no host to fetch layer ${input.layer.blob.digest} from`, { code: 'NO_HOST' });
  }

  async #fetchFrom(
    host: RegistryHost,
    input: LayerInput,
    claim: PartialClaim | undefined,
    signal: AbortSignal,
  ): Promise<Fetched> {
    const access = this.#deps.access(host, host.isMirror ? undefined : input.credentials);
    const show = (view: LayerView): void => this.#deps.publish(input.layer.chainId, view);
    const { parent } = input.layer;
    let partial = claim?.place;
    if (partial && parent !== undefined && this.#isWorthWaiting(parent)) {
      try {
        return await this.#fetchAhead({ input, access, partial, show, signal }, parent);
      } catch (error) {
        if (!isEngineError(error) || error.code !== 'NOT_KEPT') throw error;
        // There is no room for the blob beside the layer, which may still fit by itself.
        await this.#below(parent, signal).catch((failure: unknown) => Promise.reject(new BelowFailed(failure)));
        partial = undefined;
      }
    }
    const task = { input, access, partial, show, signal };
    const staged = await this.#deps.layers.stage(parent);
    try {
      // The transfer waits here and not in the pool, where a cancel would not reach it.
      const output = await this.#slots.run(signal, () => runLayerTask(this.#deps, { ...task, staged }));
      return { staged, output };
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  /** True if less has to be done for a layer when the one below, which is on its way, is whole before. */
  #isWorthWaiting(parent: Digest): boolean {
    const { layers } = this.#deps;
    // One that was given up may be followed by another one.
    const isComing = this.#newest.get(parent)?.signal.aborted === false;
    return layers.prefersWholeBelow && layers.find(parent) === undefined && isComing;
  }

  /** Fetches while the layer below is on its way, and extracts when that is in the store. */
  async #fetchAhead(task: Omit<AheadTask, 'staged'>, parent: Digest): Promise<Fetched> {
    const over = new AbortController();
    const signal = AbortSignal.any([task.signal, over.signal]);
    const staged = this.#below(parent, signal).then(() => this.#deps.layers.stage(parent));
    staged.catch((error: unknown) => over.abort(new BelowFailed(error)));
    const ahead: AheadTask = { ...task, signal, staged };
    try {
      let output = await this.#slots.run(signal, () => runAheadTask(this.#deps, ahead));
      if (!output) {
        task.show({ type: 'fetched' });
        await staged;
        output = await this.#keptSlots.run(signal, () => runKeptTask(this.#deps, ahead));
      }
      return { staged: await staged, output };
    } catch (error) {
      const reason: unknown = over.signal.aborted ? over.signal.reason : error;
      over.abort(reason);
      await staged.then(
        (layer) => layer.discard(),
        () => undefined,
      );
      throw reason;
    }
  }

  async #commit({ layer }: LayerInput, { staged, output }: Fetched, signal: AbortSignal): Promise<void> {
    const { chainId, diffId, parent } = layer;
    try {
      this.#deps.publish(chainId, { type: 'extracted' });
      if (parent !== undefined) await this.#below(parent, signal);
      signal.throwIfAborted();
      const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = output;
      const content = { diffId, sizeBytes, implicitDirs, danglingLinks, whiteouts };
      await staged.commit({ ...content, parent }, this.#deps.pool);
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  /** Waits until the layer below is in the store. */
  async #below(parent: Digest, signal: AbortSignal): Promise<void> {
    const below = this.#newest.get(parent);
    if (below) await orAborted(below.ended, signal);
    if (!this.#deps.layers.find(parent))
      throw dataLoss(`layer ${parent} is missing below a fetched layer`, { code: 'LAYER_MISSING' });
  }
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
