/** Leases of one containerd namespace. What a lease holds is kept from containerd's garbage collection. */
import { randomUUID } from 'node:crypto';
import { isEngineError } from '../errors/engine-error.js';
import type { GrpcConnection, UnaryClient } from './grpc-connection.js';
import { isTaken } from './grpc-error.js';
import { Leases } from './proto/gen/leases_pb.js';

/** A lease that is only there to be deleted ends by itself after this time, should the daemon be killed before. */
const COLLECTION_MS = 60 * 60_000;
/** containerd's garbage collector reads this label of a lease, as RFC 3339 has times. */
const EXPIRE_LABEL = 'containerd.io/gc.expire';

export class ContainerdLeases {
  readonly #connection: GrpcConnection;
  #calls: UnaryClient<typeof Leases> | undefined;

  constructor(connection: GrpcConnection) {
    this.#connection = connection;
  }

  /** Made when it is needed: what encodes the messages would take a part of each start. */
  get #service(): UnaryClient<typeof Leases> {
    return (this.#calls ??= this.#connection.unary(Leases));
  }

  /** Makes a lease without an end; nothing happens when there is one of this name. */
  async make(lease: string): Promise<void> {
    try {
      await this.#service.create({ id: lease });
    } catch (error) {
      if (!isTaken(error)) throw error;
    }
  }

  /** Returns the names of what a lease holds of a type; undefined when there is no such lease. */
  async held(lease: string, type: string): Promise<readonly string[] | undefined> {
    try {
      const { resources } = await this.#service.listResources({ id: lease });
      return resources.flatMap((resource) => (resource.type === type ? [resource.id] : []));
    } catch (error) {
      if (isEngineError(error, 'not-found')) return undefined;
      throw error;
    }
  }

  async hold(lease: string, type: string, names: readonly string[]): Promise<void> {
    for (const id of names) await this.#service.addResource({ id: lease, resource: { id, type } });
  }

  /** Idempotent. */
  async letGo(lease: string, type: string, names: readonly string[]): Promise<void> {
    for (const id of names) {
      try {
        await this.#service.deleteResource({ id: lease, resource: { id, type } });
      } catch (error) {
        if (!isEngineError(error, 'not-found')) throw error;
      }
    }
  }

  /** The service has no call for a collection of its own; the deletion of a lease waits for one. */
  async collect(): Promise<void> {
    const id = `collection-${randomUUID()}`;
    const labels = { [EXPIRE_LABEL]: new Date(Date.now() + COLLECTION_MS).toISOString() };
    await this.#service.create({ id, labels });
    await this.#service.delete({ id, sync: true });
  }
}
