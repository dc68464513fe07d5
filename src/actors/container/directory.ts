/**
 * The directory of containers: names, published views, and the actor behind each id. Reads are served from the views
 * without a message; commands go to the actors. It is the containers' part of the root actor's public face.
 */
import type { ActorRefFrom } from 'xstate';
import { EngineError, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { ImageStore } from '../../ports/images.js';
import type { NetworkDriver } from '../../ports/network.js';
import type { Logger } from '../../ports/logger.js';
import type { ReplyOf, Unasked } from '../kit/commands.js';
import { createCollection, type Collection } from '../kit/collection.js';
import { ACTOR_GONE, type Replies } from '../kit/replies.js';
import type { ContainerCommand, ContainerFact, WaitCondition, WaitResult } from './container.messages.js';
import type { createContainerMachine } from './container.machine.js';
import type { TaskInfo } from '../../ports/supervisor.js';
import type { ContainerInput } from './container.setup.js';
import { isRunning, topLayersOf, type ContainerRecord } from './container.record.js';
import type { CreateRequest } from './create/create-request.js';
import { revived } from './life/reconcile.js';
import { renamed } from './network/networks.js';
import { Names, newContainerId } from './create/names.js';

export type ContainerMachine = ReturnType<typeof createContainerMachine>;

/** How long the exit of a removed container can still be asked for by its full id: a wait can come late. */
export const EXIT_RETENTION_MS = 10 * 60_000;

export interface DirectoryDeps {
  readonly replies: Replies;
  readonly log: Logger;
  readonly images: ImageStore;
  readonly layers: LayerStore;
  readonly network: Pick<NetworkDriver, 'rename'>;
  /** Resolves when no effect of an actor that is gone is under way. */
  readonly settled: (id: string) => Promise<void>;
  /** The record on disk, undefined for none. */
  readonly saved: (id: string) => Promise<ContainerRecord | undefined>;
  readonly task: (id: string) => Promise<TaskInfo | undefined>;
  /** Removes everything that was made for a container whose creation failed, because no client will hear of it. */
  readonly abandon: (record: ContainerRecord) => Promise<void>;
  /** Checks a request against image and host and makes the first record (without touching the disk). */
  draft(
    request: CreateRequest,
    id: string,
    name: string,
  ): { readonly record: ContainerRecord; readonly warnings: readonly string[] };
}

export class ContainerDirectory {
  readonly #views = new Map<string, ContainerRecord>();
  #sorted: readonly ContainerRecord[] | undefined;
  readonly #names = new Names();
  readonly #exits = new Map<string, WaitResult>();
  /** The layers that each container keeps from being removed. */
  readonly #layers = new Map<string, readonly Digest[]>();
  /** Resolves when exits of an earlier life of the daemon are known. */
  #exitsKnown: Promise<void> = Promise.resolve();
  readonly collection: Collection<ContainerMachine>;
  #send: (event: Parameters<Collection<ContainerMachine>['logic']['transition']>[1]) => void = () => undefined;

  constructor(
    private readonly deps: DirectoryDeps,
    machine: ContainerMachine,
  ) {
    this.collection = createCollection({
      kind: 'container',
      logic: machine,
      replies: deps.replies,
      revive: (id) => this.#revive(id),
      onCrash: (id, error, revived) =>
        deps.log.error({ err: error, container: id, revived }, 'container actor crashed'),
    });
  }

  /** Called once the root actor runs: where spawn events go. */
  connect(send: (event: Parameters<Collection<ContainerMachine>['logic']['transition']>[1]) => void): void {
    this.#send = send;
  }

  /** Newest first. The array is shared and replaced, never changed. */
  list(): readonly ContainerRecord[] {
    return (this.#sorted ??= [...this.#views.values()].toSorted((a, b) =>
      a.created < b.created ? 1 : a.created > b.created ? -1 : 0,
    ));
  }

  /** Only containers that may be doing something have an actor; those that merely exist have none. */
  active(): ContainerRecord[] {
    return this.list().filter((record) => isRunning(record) || this.collection.children.has(record.id));
  }

  get(id: string): ContainerRecord | undefined {
    return this.#views.get(id);
  }

  /**
   * Full id, exact name with or without slash, or unique id prefix. Throws not-found `No such container: X`, invalid
   * for an ambiguous prefix.
   */
  find(reference: string): ContainerRecord {
    if (reference === '') throw invalid('invalid name or ID supplied: ""');
    const exact = this.#views.get(reference) ?? this.#views.get(this.#names.get(reference) ?? '');
    if (exact) return exact;
    let found: ContainerRecord | undefined;
    for (const [id, record] of this.#views) {
      if (!id.startsWith(reference)) continue;
      if (found) throw invalid(`multiple IDs found with provided prefix: ${reference}`, { code: 'AMBIGUOUS_ID' });
      found = record;
    }
    if (!found) throw notFound(`No such container: ${reference}`, { code: 'NO_SUCH_CONTAINER' });
    return found;
  }

  /** Creates a container; resolves when it is durable. */
  async create(request: CreateRequest): Promise<{ record: ContainerRecord; warnings: readonly string[] }> {
    const id = newContainerId();
    const name = request.name ? this.#names.reserve(request.name, id) : this.#names.generate(id);
    let drafted: ContainerRecord | undefined;
    try {
      const { record, warnings } = this.deps.draft(request, id, name);
      drafted = record;
      this.#retainLayers(record);
      this.#send({ type: 'collection.spawn', id, input: { phase: 'new', record } });
      return {
        record: await this.#ask<Extract<ContainerCommand, { type: 'container.settled' }>>(id, {
          type: 'container.settled',
        }),
        warnings,
      };
    } catch (error) {
      // The actor crashed after the container was made: the container exists, so nothing is taken back.
      if (this.#views.has(id)) throw error;
      if (drafted && isEngineError(error, 'unavailable') && error.code === ACTOR_GONE) await this.#abandon(drafted);
      this.#names.release(name, id);
      await this.releaseLayers(id);
      throw error;
    }
  }

  /**
   * Takes in the containers found on disk; resolves when those that still run are taken over. The others come after
   * them, for nobody may be given an address or a port that a running container has. One that rests gets its actor with
   * its first command: a start must not take longer for each container that merely exists.
   */
  async adopt(inputs: readonly ContainerInput[]): Promise<void> {
    for (const { record } of inputs) {
      this.#names.reserve(record.name, record.id);
      this.#retainLayers(record);
      this.publish(record.id, record);
    }
    const spawn = (input: ContainerInput): void => this.#send({ type: 'collection.spawn', id: input.record.id, input });
    inputs.filter(({ phase }) => phase === 'running').forEach(spawn);
    await this.settled();
    inputs.filter(({ phase }) => phase === 'exited' || phase === 'removing').forEach(spawn);
  }

  #retainLayers(record: ContainerRecord): void {
    const layers = topLayersOf(record);
    for (const layer of layers) this.deps.layers.retain(layer);
    this.#layers.set(record.id, layers);
  }

  /**
   * Lets go of the layers of a container that is removed. Idempotent, because a removal can be begun more than once.
   */
  async releaseLayers(id: string): Promise<void> {
    const layers = this.#layers.get(id) ?? [];
    this.#layers.delete(id);
    for (const layer of layers) await this.deps.layers.release(layer);
  }

  /** Sends a command to the container that `reference` names. */
  ask<C extends ContainerCommand>(reference: string, command: Unasked<C>, signal?: AbortSignal): Promise<ReplyOf<C>> {
    return this.#ask(this.find(reference).id, command, signal);
  }

  /** Waits; the exit of a container that is removed already is answered for some minutes. */
  wait(reference: string, condition: WaitCondition, signal?: AbortSignal): Promise<WaitResult> {
    const past = this.#views.has(reference) ? undefined : this.#exits.get(reference);
    if (past) return Promise.resolve(past);
    return this.ask<Extract<ContainerCommand, { type: 'container.wait' }>>(
      reference,
      { type: 'container.wait', condition },
      signal,
    );
  }

  /** Renames; running containers too. */
  async rename(reference: string, to: string): Promise<{ record: ContainerRecord; oldName: string }> {
    const before = this.find(reference);
    if (to === '') throw invalid('Neither old nor new names may be empty');
    if (before.name === (to.startsWith('/') ? to : `/${to}`))
      throw invalid('Renaming a container with the same name as its current name');
    let name: string;
    try {
      name = this.#names.reserve(to, before.id);
    } catch (error) {
      throw isEngineError(error, 'conflict')
        ? new EngineError('conflict', `Error when allocating new name: ${error.message}`, { cause: error })
        : error;
    }
    try {
      const record = await this.#ask<Extract<ContainerCommand, { type: 'container.amend' }>>(before.id, {
        type: 'container.amend',
        amend: (current) => renamed(current, name),
        applied: ({ id, networks }) => {
          for (const { endpoint } of Object.values(networks)) if (endpoint) this.deps.network.rename(id, endpoint);
        },
      });
      this.#names.release(before.name, before.id);
      return { record, oldName: before.name };
    } catch (error) {
      this.#names.release(name, before.id);
      throw error;
    }
  }

  /**
   * Tells a container what the supervisor reported; while its actor is down, that is kept for it. Facts about unknown
   * containers, and those at rest, are dropped.
   */
  tell(id: string, fact: ContainerFact): void {
    this.collection.tell(id, fact);
  }

  /**
   * Decides where the actor of a container begins after a crash, from the last published record, the record on disk and
   * the supervisor.
   */
  async #revive(id: string): Promise<ContainerInput | undefined> {
    await this.deps.settled(id);
    const [saved, task] = await Promise.all([this.deps.saved(id), this.deps.task(id)]);
    // The published record is read last, because it may change until then.
    const view = this.#views.get(id);
    return view && revived(view, saved, task, new Date());
  }

  async #abandon(record: ContainerRecord): Promise<void> {
    await this.deps.settled(record.id);
    const saved = await this.deps.saved(record.id).catch(() => undefined);
    await this.deps.abandon(saved ?? record).catch((error: unknown) => {
      this.deps.log.error(
        { err: error, container: record.id },
        'what was made of a container is left until the next start',
      );
    });
  }

  /** Replaces or drops a view: the hook of the machines. */
  publish(id: string, record: ContainerRecord | undefined): void {
    const before = this.#views.get(id);
    if (before === record) return;
    this.#sorted = undefined;
    if (record) {
      this.#views.set(id, record);
    } else if (before) {
      this.#views.delete(id);
      this.#names.release(before.name, id);
      this.rememberExit(id, { exitCode: before.state.exitCode }, EXIT_RETENTION_MS);
    }
  }

  /** Makes an exit known for so long, should its container be gone by then. */
  rememberExit(id: string, result: WaitResult, forMs: number): void {
    this.#exits.set(id, result);
    setTimeout(() => this.#exits.get(id) === result && this.#exits.delete(id), forMs).unref();
  }

  /** To be awaited before a `wait`, which can say what it knows only. */
  async knows(reference: string): Promise<void> {
    if (!this.#views.has(reference)) await this.#exitsKnown;
  }

  /** Exits of an earlier life of the daemon are being learned. */
  learnExits(learned: Promise<void>): Promise<void> {
    this.#exitsKnown = learned.catch(() => undefined);
    return learned;
  }

  /**
   * Makes the actor of a container that has rested since the daemon started: its record says everything, so nothing is
   * looked up.
   */
  #wake(id: string): ActorRefFrom<ContainerMachine> | undefined {
    const record = this.#views.get(id);
    if (record) this.#send({ type: 'collection.spawn', id, input: { phase: 'idle', record } });
    return this.collection.children.get(id);
  }

  /** Resolves when every container rests: nothing is being created, settled or removed. */
  async settled(): Promise<void> {
    const asks = [...this.collection.children.keys()].map((id) =>
      this.#ask<Extract<ContainerCommand, { type: 'container.settled' }>>(id, { type: 'container.settled' }),
    );
    await Promise.allSettled(asks);
  }

  async #askLater<C extends ContainerCommand>(
    id: string,
    command: Unasked<C>,
    signal?: AbortSignal,
  ): Promise<ReplyOf<C>> {
    await this.collection.awake(id);
    return this.#ask<C>(id, command, signal);
  }

  #ask<C extends ContainerCommand>(id: string, command: Unasked<C>, signal?: AbortSignal): Promise<ReplyOf<C>> {
    if (this.collection.isDown(id)) return this.#askLater<C>(id, command, signal);
    const actor = this.collection.children.get(id) ?? this.#wake(id);
    if (!actor) return Promise.reject(notFound(`No such container: ${id}`));
    return this.deps.replies.ask<C>(actor, command, signal);
  }
}
