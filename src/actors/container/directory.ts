/**
 * The directory of containers: the actor behind each id, next to the published views. Reads are served from the views
 * without a message; commands go to the actors. It is the containers' part of the root actor's public face.
 */
import { EngineError, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import type { NetworkDriver } from '../../ports/network.js';
import type { Attempt } from '../../ports/kept-replies.js';
import type { Logger } from '../../ports/logger.js';
import type { Collection, CollectionEvent } from '../kit/collection.js';
import type { ReplyOf } from '../kit/commands.js';
import { ActorDirectory, type FieldsOf } from '../kit/directory.js';
import { NO_PROGRESS } from '../kit/pace.js';
import { ACTOR_GONE, type Replies } from '../kit/replies.js';
import {
  isForceful,
  type ContainerCommand,
  type ContainerFact,
  type RemoveOptions,
  type StopOptions,
  type WaitCondition,
  type WaitResult,
} from './container.messages.js';
import type { createContainerMachine } from './container.machine.js';
import type { TaskInfo } from '../../ports/supervisor.js';
import type { ContainerInput } from './container.context.js';
import { isRunning, type ContainerRecord } from './container.record.js';
import type { CreateRequest } from './create/create-request.js';
import { revived } from './life/reconcile.js';
import type { NetworkChange } from './network/network-change.js';
import { renamed } from './network/networks.js';
import { containerIdFrom, newContainerId } from './create/names.js';
import type { ContainerHolds } from './holds.js';
import type { ContainerViews } from './views.js';

export type ContainerMachine = ReturnType<typeof createContainerMachine>;

/** How long the exit of a removed container can still be asked for by its full id: a wait can come late. */
export const EXIT_RETENTION_MS = 10 * 60_000;

export interface DirectoryDeps {
  readonly replies: Replies;
  readonly log: Logger;
  readonly views: ContainerViews;
  readonly holds: ContainerHolds;
  readonly network: Pick<NetworkDriver, 'rename'>;
  /** Resolves when no effect of an actor that is gone is under way. */
  readonly settled: (id: string) => Promise<void>;
  /** Returns the record on disk; undefined when there is none. */
  readonly saved: (id: string) => Promise<ContainerRecord | undefined>;
  readonly task: (id: string) => Promise<TaskInfo | undefined>;
  /** Removes everything that was made for a container whose creation failed, because no client will hear of it. */
  readonly abandon: (record: ContainerRecord) => Promise<void>;
  /** Checks a request against image and host and makes the first record (without touching the disk). */
  draft(request: CreateRequest, id: string, name: string): Created;
}

export interface Created {
  readonly record: ContainerRecord;
  readonly warnings: readonly string[];
}

export class ContainerDirectory {
  readonly #exits = new Map<string, WaitResult>();
  /** Resolves when exits of an earlier life of the daemon are known. */
  #exitsKnown: Promise<void> = Promise.resolve();
  readonly #actors: ActorDirectory<ContainerMachine, ContainerCommand>;

  constructor(
    private readonly deps: DirectoryDeps,
    machine: ContainerMachine,
  ) {
    this.#actors = new ActorDirectory({
      kind: 'container',
      logic: machine,
      replies: deps.replies,
      missing: (id) => notFound(`No such container: ${id}`),
      revive: (id) => this.#revive(id),
      onCrash: (id, error, revived) =>
        deps.log.error({ err: error, container: id, revived }, 'container actor crashed'),
    });
    deps.views.subscribe((id, record, before) => {
      if (!record && before) this.rememberExit(id, { exitCode: before.state.exitCode }, EXIT_RETENTION_MS);
    });
  }

  get collection(): Collection<ContainerMachine> {
    return this.#actors.collection;
  }

  /** This must be called when the root actor runs: `send` takes spawn events to it. */
  connect(send: (event: CollectionEvent<ContainerMachine>) => void): void {
    this.#actors.connect(send);
  }

  /** Returns all containers, newest first. The array is shared and replaced, never changed. */
  list(): readonly ContainerRecord[] {
    return this.deps.views.list();
  }

  /** Returns the containers that run or have an actor; the others merely exist. */
  active(): ContainerRecord[] {
    return this.list().filter((record) => isRunning(record) || this.#actors.has(record.id));
  }

  get(id: string): ContainerRecord | undefined {
    return this.deps.views.get(id);
  }

  /** Finds a container as `ContainerViews.find` does. */
  find(reference: string): ContainerRecord {
    return this.deps.views.find(reference);
  }

  /** Creates a container; resolves when it is durable. An attempt that was interrupted may have made it already. */
  async create(request: CreateRequest, attempt?: Attempt): Promise<Created> {
    const id = attempt === undefined ? newContainerId() : containerIdFrom(attempt.id);
    const made = attempt?.isInterrupted === true ? this.deps.views.get(id) : undefined;
    if (made !== undefined) return { record: made, warnings: this.#warningsOf(request, made) };
    const name = request.name ? this.deps.views.names.reserve(request.name, id) : this.deps.views.names.generate(id);
    let drafted: ContainerRecord | undefined;
    try {
      const { record, warnings } = this.deps.draft(request, id, name);
      drafted = record;
      this.deps.holds.retain(record);
      this.#actors.spawn(id, { phase: 'new', record });
      return {
        record: await this.#ask(id, 'container.settled', {}),
        warnings,
      };
    } catch (error) {
      // The actor crashed after the container was made: the container exists, so nothing is taken back.
      if (this.deps.views.has(id)) throw error;
      if (drafted && isEngineError(error) && (error.code === ACTOR_GONE || error.code === NO_PROGRESS))
        await this.#abandon(drafted);
      this.deps.views.names.release(name, id);
      await this.deps.holds.release(id);
      throw error;
    }
  }

  /** Returns what its creation said of a container, as far as that can still be found out. */
  #warningsOf(request: CreateRequest, { id, name }: ContainerRecord): readonly string[] {
    try {
      return this.deps.draft(request, id, name).warnings;
    } catch (error) {
      // The image may be gone, but the container is there.
      if (isEngineError(error)) return request.warnings;
      throw error;
    }
  }

  /**
   * Takes in the containers found on disk; resolves when those that still run are taken over. The others come after
   * them, so that none of them is given an address or a port that a running container has. A container that rests gets
   * its actor with its first command: a start must not take longer for each container that merely exists.
   */
  async adopt(inputs: readonly ContainerInput[]): Promise<void> {
    for (const { record } of inputs) {
      this.deps.views.load(record);
      this.deps.holds.retain(record);
    }
    const spawn = (input: ContainerInput): void => this.#actors.spawn(input.record.id, input);
    inputs.filter(({ phase }) => phase === 'running').forEach(spawn);
    await this.settled();
    inputs.filter(({ phase }) => phase === 'exited' || phase === 'ended' || phase === 'removing').forEach(spawn);
  }

  start(reference: string): Promise<void> {
    return this.#command(reference, 'container.start', {});
  }

  stop(reference: string, options: StopOptions): Promise<void> {
    return this.#command(reference, 'container.stop', { options });
  }

  /** Stops a container for the daemon's own shutdown: the restart policy brings it back at the next start. */
  shutDown(reference: string, options: StopOptions): Promise<void> {
    return this.#command(reference, 'container.shutdown', { options });
  }

  restart(reference: string, options: StopOptions): Promise<void> {
    return this.#command(reference, 'container.restart', { options });
  }

  /** Sends a signal. @param wasTold an earlier daemon told of it, and may have sent it. */
  kill(reference: string, signal: number, wasTold = false): Promise<void> {
    return this.#command(reference, 'container.kill', { signal, wasTold });
  }

  pause(reference: string): Promise<void> {
    return this.#command(reference, 'container.pause', {});
  }

  unpause(reference: string): Promise<void> {
    return this.#command(reference, 'container.unpause', {});
  }

  remove(reference: string, options: RemoveOptions): Promise<void> {
    return this.#command(reference, 'container.remove', { options });
  }

  /** Connects a container to a network or disconnects it. */
  rewire(reference: string, change: NetworkChange): Promise<ContainerRecord> {
    return this.#command(reference, 'container.rewire', { change });
  }

  /** Replaces parts of the record that clients may change at any time; see `AmendCommand`. */
  amend(reference: string, change: FieldsOf<ContainerCommand, 'container.amend'>): Promise<ContainerRecord> {
    return this.#command(reference, 'container.amend', change);
  }

  /**
   * Waits for a condition. For some minutes it also answers with the exit of a container that is removed already.
   * Throws at once for an unknown container.
   */
  wait(reference: string, condition: WaitCondition, signal?: AbortSignal): Promise<WaitResult> {
    const past = this.deps.views.has(reference) ? undefined : this.#exits.get(reference);
    if (past) return Promise.resolve(past);
    return this.#ask(this.find(reference).id, 'container.wait', { condition }, signal);
  }

  /** Renames a container, also while it runs. */
  async rename(reference: string, to: string): Promise<{ record: ContainerRecord; oldName: string }> {
    if (to === '') throw invalid('Neither old nor new names may be empty');
    const before = this.find(reference);
    if (before.name === (to.startsWith('/') ? to : `/${to}`))
      throw invalid('Renaming a container with the same name as its current name');
    let name: string;
    try {
      name = this.deps.views.names.reserve(to, before.id);
    } catch (error) {
      throw error instanceof EngineError
        ? new EngineError(error.kind, `Error when allocating new name: ${error.message}`, { cause: error })
        : error;
    }
    try {
      const record = await this.amend(before.id, {
        amend: (current) => renamed(current, name),
        applied: ({ id, networks }) => {
          for (const { endpoint } of Object.values(networks)) if (endpoint) this.deps.network.rename(id, endpoint);
        },
      });
      this.deps.views.names.release(before.name, before.id);
      return { record, oldName: before.name };
    } catch (error) {
      this.deps.views.names.release(name, before.id);
      throw error;
    }
  }

  /**
   * Tells a container what the supervisor reported; while its actor is down, that is kept for it. Facts about unknown
   * containers, and those at rest, are dropped.
   */
  tell(id: string, fact: ContainerFact): void {
    this.#actors.tell(id, fact);
  }

  /**
   * Decides where the actor of a container begins after a crash, from the last published record, the record on disk and
   * the supervisor.
   */
  async #revive(id: string): Promise<ContainerInput | undefined> {
    await this.deps.settled(id);
    const [saved, task] = await Promise.all([this.deps.saved(id), this.deps.task(id)]);
    // The published record is read last, because it may change until then.
    const view = this.deps.views.get(id);
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

  /** Keeps an exit for `forMs`, for waits that come when the container is gone. */
  rememberExit(id: string, result: WaitResult, forMs: number): void {
    this.#exits.set(id, result);
    setTimeout(() => this.#exits.get(id) === result && this.#exits.delete(id), forMs).unref();
  }

  /**
   * Resolves when `wait` can answer for this container. Exits of an earlier life of the daemon are not known at once.
   */
  async knows(reference: string): Promise<void> {
    if (!this.deps.views.has(reference)) await this.#exitsKnown;
  }

  /** Lets `knows` wait until the exits of an earlier life of the daemon are learned. */
  learnExits(learned: Promise<void>): Promise<void> {
    this.#exitsKnown = learned.catch(() => undefined);
    return learned;
  }

  /** Resolves when every container rests: nothing is being created, settled or removed. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#actors.ids().map((id) => this.#ask(id, 'container.settled', {})));
  }

  /** Sends a command to the container that `reference` names. */
  #command<T extends ContainerCommand['type']>(
    reference: string,
    type: T,
    fields: FieldsOf<ContainerCommand, T>,
  ): Promise<ReplyOf<Extract<ContainerCommand, { type: T }>>> {
    const { id } = this.find(reference);
    return this.#ask(id, type, fields).catch((error: unknown) => {
      const isGivenUp = isEngineError(error, 'deadline') && error.code === NO_PROGRESS;
      // The effect that held the command up was given up, so the command is tried once more.
      if (isGivenUp && isForceful({ type, ...fields }) && this.deps.views.has(id)) return this.#ask(id, type, fields);
      throw error;
    });
  }

  /**
   * Asks the actor of a container. A container that has rested since the daemon started gets its actor now: its record
   * says everything, so nothing is looked up.
   */
  #ask<T extends ContainerCommand['type']>(
    id: string,
    type: T,
    fields: FieldsOf<ContainerCommand, T>,
    signal?: AbortSignal,
  ): Promise<ReplyOf<Extract<ContainerCommand, { type: T }>>> {
    const begin = (): ContainerInput | undefined => {
      const record = this.deps.views.get(id);
      return record && { phase: 'idle', record };
    };
    return this.#actors.ask(id, type, fields, { signal, begin });
  }
}
