/**
 * A directory of equal actors: finds or spawns the actor behind an id, asks it, tells it facts, stops it. A room offers
 * its commands to the others by these few calls, and need not know what happens when an actor has just gone.
 */
import type { AnyActorLogic, EventFromLogic, InputFrom } from 'xstate';
import { type EngineError, isEngineError } from '../../errors/engine-error.js';
import { type Collection, type CollectionEvent, type CollectionOptions, createCollection } from './collection.js';
import type { ReplyOf, RequestId, Unasked } from './commands.js';
import { ACTOR_GONE, type Askable } from './replies.js';

type AnyCommand = { readonly type: string; readonly req: RequestId };

/** The command of type `T` among the commands `C`. */
type Named<C extends AnyCommand, T extends C['type']> = Extract<C, { readonly type: T }>;

/** The members of a command besides its type. */
export type FieldsOf<C extends AnyCommand, T extends C['type']> = Omit<Unasked<Named<C, T>>, 'type'>;

export interface AskOptions<Input> {
  readonly signal?: AbortSignal | undefined;
  /** Returns what a new actor begins with; undefined: there is nothing to begin. If it is absent, none is made. */
  readonly begin?: () => Input | undefined;
}

export interface DirectoryOptions<L extends AnyActorLogic> extends CollectionOptions<L> {
  /** The error for an id that has no actor. */
  readonly missing: (id: string) => EngineError;
}

export class ActorDirectory<L extends AnyActorLogic, C extends AnyCommand> {
  readonly collection: Collection<L>;
  #send: (event: CollectionEvent<L>) => void = () => undefined;

  constructor(private readonly options: DirectoryOptions<L>) {
    this.collection = createCollection(options);
  }

  /** This must be called when the root actor runs: `send` takes the collection's events to it. */
  connect(send: (event: CollectionEvent<L>) => void): void {
    this.#send = send;
  }

  has(id: string): boolean {
    return this.collection.children.has(id);
  }

  ids(): readonly string[] {
    return [...this.collection.children.keys()];
  }

  spawn(id: string, input: InputFrom<L>): void {
    this.#send({ type: 'collection.spawn', id, input });
  }

  stop(id: string): void {
    this.#send({ type: 'collection.stop', id });
  }

  /** Tells an actor a fact. An actor that is down hears of it when it is back; a fact for nobody is dropped. */
  tell(id: string, fact: EventFromLogic<L>): void {
    this.collection.tell(id, fact);
  }

  /**
   * Asks the actor behind an id. An actor that is down is begun first, and `begin` makes one that is missing. If the
   * actor has ended before it answered, another one is made, once, where they are not revived: it knows all that the
   * first one knew. Else there is no such actor any more, unless it has crashed: then nobody knows what it had done.
   */
  ask<T extends C['type']>(
    id: string,
    type: T,
    fields: FieldsOf<C, T>,
    { signal, begin }: AskOptions<InputFrom<L>> = {},
  ): Promise<ReplyOf<Named<C, T>>> {
    // These are the two parts of one type, which the compiler cannot put together while it does not know the command.
    const command = { type, ...fields } as unknown as Unasked<Named<C, T>>;
    const ask = (): Promise<ReplyOf<Named<C, T>>> => {
      if (this.collection.isDown(id)) return this.collection.awake(id).then(ask);
      if (begin && !this.has(id)) {
        const input = begin();
        if (input !== undefined) this.spawn(id, input);
      }
      // That the actors of `L` take the commands of `C` is known only where both are named.
      const actor = this.collection.children.get(id) as unknown as Askable<Named<C, T>> | undefined;
      return actor
        ? this.options.replies.ask<Named<C, T>>(actor, command, signal)
        : Promise.reject(this.options.missing(id));
    };
    return ask().catch((error: unknown) => {
      if (!isEngineError(error, 'unavailable') || error.code !== ACTOR_GONE) throw error;
      if (begin && !this.options.revive) return ask();
      throw this.has(id) || this.collection.isDown(id) ? error : this.options.missing(id);
    });
  }
}
