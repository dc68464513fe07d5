/**
 * The published records of containers, their names, and everybody who follows them. Reads are served from here without
 * a message to an actor. This class knows no actor, so it can be made before whatever reads or follows containers.
 */
import { invalid, notFound } from '../../errors/engine-error.js';
import type { ContainerRecord } from './container.record.js';
import { Names } from './create/names.js';
import { linkNames } from './network/legacy-links.js';

/**
 * A listener is told of a new record of a container, and of the one before it; if the record is undefined, the
 * container is gone.
 */
export type ViewListener = (
  id: string,
  record: ContainerRecord | undefined,
  before: ContainerRecord | undefined,
) => void;

export class ContainerViews {
  readonly names = new Names();
  readonly #records = new Map<string, ContainerRecord>();
  /** Those of `#records` that have links. */
  readonly #linking = new Map<string, ContainerRecord>();
  #sorted: readonly ContainerRecord[] | undefined;
  #linkNames: ReadonlyMap<string, readonly string[]> | undefined;
  readonly #listeners: ViewListener[] = [];

  /** Returns all records, newest first. The array is shared and replaced, never changed. */
  list(): readonly ContainerRecord[] {
    return (this.#sorted ??= [...this.#records.values()].toSorted((a, b) =>
      a.created < b.created ? 1 : a.created > b.created ? -1 : 0,
    ));
  }

  get(id: string): ContainerRecord | undefined {
    return this.#records.get(id);
  }

  has(id: string): boolean {
    return this.#records.has(id);
  }

  /**
   * Finds a record by full id, exact name with or without slash, `name/alias` of a link, or unique id prefix. Throws
   * not-found `No such container: X`, invalid for an ambiguous prefix.
   */
  find(reference: string): ContainerRecord {
    if (reference === '') throw invalid('invalid name or ID supplied: ""');
    const exact =
      this.#records.get(reference) ?? this.#records.get(this.names.get(reference) ?? '') ?? this.#linked(reference);
    if (exact) return exact;
    let found: ContainerRecord | undefined;
    for (const [id, record] of this.#records) {
      if (!id.startsWith(reference)) continue;
      if (found) throw invalid(`multiple IDs found with provided prefix: ${reference}`, { code: 'AMBIGUOUS_ID' });
      found = record;
    }
    if (!found) throw notFound(`No such container: ${reference}`, { code: 'NO_SUCH_CONTAINER' });
    return found;
  }

  #linked(reference: string): ContainerRecord | undefined {
    const slash = reference.indexOf('/', 1);
    if (slash < 0) return undefined;
    const owner = this.#records.get(this.names.get(reference.slice(0, slash)) ?? '');
    const link = owner?.links?.find(({ alias }) => alias === reference.slice(slash + 1));
    return link && this.#records.get(link.id);
  }

  /** Returns the other names of a container, which links give it. */
  linkNames(id: string): readonly string[] {
    this.#linkNames ??= linkNames(this.linking());
    return this.#linkNames.get(id) ?? [];
  }

  /** Returns the containers that have links to others: few or none, however many there are. */
  linking(): Iterable<ContainerRecord> {
    return this.#linking.values();
  }

  /**
   * Calls the listener with every record that an actor publishes. Listeners are called in the order of their
   * subscription.
   */
  subscribe(listener: ViewListener): void {
    this.#listeners.push(listener);
  }

  /** Takes in a record that was found on disk. No listener is told, because its actor has taken over nothing yet. */
  load(record: ContainerRecord): void {
    this.names.reserve(record.name, record.id);
    this.#put(record.id, record);
  }

  /** Replaces the record of a container, or drops it with its name, and tells the listeners. */
  publish(id: string, record: ContainerRecord | undefined): void {
    const before = this.#put(id, record);
    for (const listener of this.#listeners) listener(id, record, before);
  }

  #put(id: string, record: ContainerRecord | undefined): ContainerRecord | undefined {
    const before = this.#records.get(id);
    if (before === record) return before;
    this.#sorted = undefined;
    this.#linkNames = undefined;
    if (record) {
      this.#records.set(id, record);
    } else if (before) {
      this.#records.delete(id);
      this.names.release(before.name, id);
    }
    if (record?.links?.length) this.#linking.set(id, record);
    else this.#linking.delete(id);
    return before;
  }
}
