/** The work of a pull: resolve at the first host that can, bring the layers in, register the image. */
import { cancelled, isEngineError } from '../../errors/engine-error.js';
import { canonicalName, canonicalString, familiarName, familiarString } from '../../images/reference.js';
import type { FileImageStore } from '../../images/store.js';
import { eventAttributes, type ImageEmit } from '../../images/removal.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { type RegistryAccess, withGrant } from '../../registry/access.js';
import type { BlobRecords } from '../../registry/blob-records.js';
import type { KeptContent } from '../../registry/kept-content.js';
import { listTags } from '../../registry/client.js';
import { explainFailure, resolveImage, type ResolvedLayer } from '../../registry/resolve.js';
import { pullScope } from '../../registry/token.js';
import type { SharedLayers } from './layers.js';
import type { LayerProgress } from './layer-progress.js';
import type { PullProgress } from './pull-progress.js';
import type { PullEffects } from './pull.machine.js';
import type { LocatedImage, PullInput, PullJob, PullRequest } from './pull.messages.js';
import { InFlight } from '../kit/in-flight.js';
import { Slots } from '../kit/slots.js';

export interface PullEffectDeps {
  readonly images: FileImageStore;
  readonly layers: LayerStore;
  readonly records: BlobRecords;
  /** Undefined when nobody wants images as registries have them. */
  readonly kept: KeptContent | undefined;
  readonly transfers: SharedLayers;
  readonly accessTo: (domain: string, credentials: PullInput['credentials']) => Promise<RegistryAccess[]>;
  readonly progress: (job: PullJob) => PullProgress;
  readonly emit: ImageEmit;
  readonly maxConcurrentDownloads: () => number;
}

interface Held {
  readonly layers: Digest[];
  readonly letGo: () => void;
}

/** If an effect hangs, the job's references are kept for this long after the job has ended. */
const ABANDON_LIMIT_MS = 10 * 60_000;

export class PullWork implements PullEffects {
  readonly #deps: PullEffectDeps;
  readonly #aborts = new Map<string, AbortController>();
  /** References on layers, and the image, that a job keeps from removal until its image is registered. */
  readonly #held = new Map<string, Held>();
  readonly #underWay = new InFlight();

  constructor(deps: PullEffectDeps) {
    this.#deps = deps;
  }

  cancel(id: string): void {
    this.#aborts.get(id)?.abort(cancelled('the pull is not wanted any more'));
  }

  /** Resolves a reference by asking one host after the other. */
  async resolve({ reference, platform, credentials }: PullInput, signal: AbortSignal): Promise<LocatedImage> {
    const { images } = this.#deps;
    const accesses = await this.#deps.accessTo(reference.domain, credentials);
    const wanted = {
      repository: reference.path,
      reference: reference.digest ?? reference.tag ?? 'latest',
      platform,
      familiarName: familiarName(reference),
      familiarString: familiarString(reference),
    };
    const known = (digest: Digest): Promise<Buffer | undefined> => images.knownConfig(digest);
    let failure: unknown;
    for (const [index, access] of accesses.entries()) {
      try {
        const image = await resolveImage(access, wanted, known, signal);
        const imageId = images.idFor(image.configDigest, image.published);
        return { image, imageId, hosts: accesses.slice(index).map(({ host }) => host) };
      } catch (error) {
        failure = error;
        // A mirror may lack or refuse anything, so the next host is asked. A layer that we cannot use is the same at
        // every host.
        const isFinal = signal.aborted || (isEngineError(error) && error.code === 'UNSUPPORTED_LAYER');
        if (!access.host.isMirror || isFinal) break;
      }
    }
    throw signal.aborted ? signal.reason : failure;
  }

  /** Returns every tag of a repository, from the first host that knows it. */
  async listTags({ reference, credentials }: PullRequest, signal: AbortSignal): Promise<string[]> {
    const accesses = await this.#deps.accessTo(reference.domain, credentials);
    let failure: unknown;
    for (const access of accesses) {
      try {
        return await withGrant(access, pullScope(reference.path), signal, (grant) =>
          listTags(grant, reference.path, { limits: access.limits, signal }),
        );
      } catch (error) {
        failure = error;
        if (!access.host.isMirror || signal.aborted) break;
      }
    }
    const name = familiarName(reference);
    throw explainFailure(failure, { familiarName: name, familiarString: name });
  }

  fetch(job: PullJob): Promise<void> {
    return this.#underWay.note(job.pull.id, this.#fetchOrRelease(job));
  }

  async #fetchOrRelease(job: PullJob): Promise<void> {
    const { id } = job.pull;
    const abort = new AbortController();
    this.#aborts.set(id, abort);
    try {
      await this.#fetch(job, abort.signal);
    } catch (error) {
      await this.#release(id);
      throw error;
    } finally {
      this.#aborts.delete(id);
    }
  }

  async #fetch(job: PullJob, signal: AbortSignal): Promise<void> {
    const { images, layers, transfers, kept } = this.#deps;
    const { pull, located } = job;
    const { image, hosts } = located;
    const held: Digest[] = [];
    const ends = [images.holdComing(image.configDigest, image.published), kept?.pulling()];
    this.#held.set(pull.id, { layers: held, letGo: () => ends.splice(0).forEach((end) => end?.()) });
    const progress = this.#deps.progress(job);
    if (images.find(image.configDigest, image.published)) {
      progress.cached();
      return;
    }
    // One failed layer ends the others of this pull.
    const abort = new AbortController();
    const either = AbortSignal.any([signal, abort.signal]);
    const slots = new Slots(this.#deps.maxConcurrentDownloads());

    const bringIn = async (layer: ResolvedLayer, shown: LayerProgress): Promise<void> => {
      const free = await slots.take(either, () => shown.show({ type: 'waiting' }));
      const unwatch = transfers.watch(layer.chainId, (view) => {
        shown.show(view);
        if (view.type === 'fetched' || view.type === 'extracted') free();
      });
      try {
        const spare = (): (() => void) | undefined => slots.tryTake();
        await transfers.join(
          { layer, repository: pull.reference.path, hosts, credentials: pull.credentials, spare },
          either,
        );
        held.push(layer.chainId);
      } finally {
        unwatch();
        free();
      }
      shown.done();
    };

    const tasks = image.layers.map((layer, index) => {
      const shown = progress.layer(index);
      if (layers.find(layer.chainId)) {
        layers.retain(layer.chainId);
        held.push(layer.chainId);
        shown.exists();
        return Promise.resolve();
      }
      shown.begin();
      return bringIn(layer, shown);
    });
    let failure: unknown;
    await Promise.all(
      tasks.map((task) =>
        task.catch((error: unknown) => {
          failure ??= error;
          abort.abort(cancelled('another layer of the image failed'));
        }),
      ),
    );
    if (failure !== undefined) throw signal.aborted ? signal.reason : failure;
  }

  register(job: PullJob): Promise<void> {
    return this.#underWay.note(job.pull.id, this.#register(job));
  }

  async #register({ pull, located }: PullJob): Promise<void> {
    const { images, records, kept, emit } = this.#deps;
    const { image } = located;
    const { reference } = pull;
    const repository = canonicalName(reference);
    const progress = this.#deps.progress({ pull, located });
    try {
      const stored = await images.create(image.configBytes, { published: image.published });
      await Promise.all(
        image.layers.map(({ diffId, blob }) =>
          records.add(diffId, {
            digest: blob.digest,
            sizeBytes: blob.sizeBytes,
            mediaType: blob.mediaType,
            repository,
          }),
        ),
      );
      progress.say(`Digest: ${image.digest}`);
      const isNews = !images.stillNames(canonicalString(reference), stored.id);
      if (isNews) progress.renewed();
      const facts = await kept?.keepImage(image);
      await images.setPublished(stored, { ...image.published, ...facts });
      // Where it is the ID, each name has this digest, unless that still names an image of before.
      const name = `${repository}@${image.digest}`;
      const isKnown = image.digest === stored.id && [undefined, stored.id].includes(images.idOf(name));
      if (!isKnown || reference.digest !== undefined) await images.addDigest(name, stored.id);
      if (isNews && reference.digest === undefined) await images.tag(canonicalString(reference), stored.id);
      for (const warning of image.warnings) progress.say(warning);
      const shown = familiarString(reference);
      progress.say(isNews ? `Status: Downloaded newer image for ${shown}` : `Status: Image is up to date for ${shown}`);
      emit('pull', shown, eventAttributes(stored, familiarName(reference)));
    } finally {
      await this.#release(pull.id);
    }
  }

  /** Lets go of references when a job ends between two effects or during one, because nobody else would. */
  async abandon(id: string): Promise<void> {
    const held = this.#held.get(id);
    if (!held) return;
    await this.#underWay.settled(id, ABANDON_LIMIT_MS);
    if (this.#held.get(id) === held) this.#held.delete(id);
    await this.#releaseHeld(held);
  }

  async #release(id: string): Promise<void> {
    const held = this.#held.get(id);
    this.#held.delete(id);
    if (held) await this.#releaseHeld(held);
  }

  /** Releases what a job holds. Idempotent. */
  async #releaseHeld({ layers, letGo }: Held): Promise<void> {
    letGo();
    for (const chainId of layers.splice(0).toReversed()) await this.#deps.layers.release(chainId);
  }
}
