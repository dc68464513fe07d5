/** Snapshots and leases of one containerd namespace, over gRPC. */
import { randomUUID } from 'node:crypto';
import { isEngineError } from '../errors/engine-error.js';
import type { SnapshotMount, Snapshots } from '../ports/snapshots.js';
import { fromGrpc, isTaken } from './grpc-error.js';
import type { GrpcConnection, UnaryClient } from './grpc-connection.js';
import { Leases } from './proto/gen/leases_pb.js';
import type { Mount } from './proto/gen/mount_pb.js';
import { type ListSnapshotsResponse, Snapshots as SnapshotsService } from './proto/gen/snapshots_pb.js';

/** A lease that is only there to be deleted ends by itself after this time, should the daemon be killed before. */
const COLLECTION_MS = 60 * 60_000;
/** containerd's garbage collector reads this label of a lease, as RFC 3339 has times. */
const EXPIRE_LABEL = 'containerd.io/gc.expire';

export class ContainerdSnapshots implements Snapshots {
  readonly #connection: GrpcConnection;
  readonly #service: UnaryClient<typeof SnapshotsService>;
  readonly #leases: UnaryClient<typeof Leases>;

  constructor(
    connection: GrpcConnection,
    readonly snapshotter: string,
  ) {
    this.#connection = connection;
    this.#service = connection.unary(SnapshotsService);
    this.#leases = connection.unary(Leases);
  }

  prepare(lease: string, key: string, parent = ''): Promise<readonly SnapshotMount[] | undefined> {
    const { snapshotter } = this;
    return unlessTaken(this.#service.prepare({ snapshotter, key, parent }, { lease }).then(mountsOf));
  }

  view(lease: string, key: string, parent: string): Promise<readonly SnapshotMount[] | undefined> {
    const { snapshotter } = this;
    return unlessTaken(this.#service.view({ snapshotter, key, parent }, { lease }).then(mountsOf));
  }

  async mounts(key: string): Promise<readonly SnapshotMount[]> {
    return mountsOf(await this.#service.mounts({ snapshotter: this.snapshotter, key }));
  }

  async commit(lease: string, name: string, key: string): Promise<boolean> {
    const { snapshotter } = this;
    const done = await unlessTaken(this.#service.commit({ snapshotter, name, key }, { lease }));
    return done !== undefined;
  }

  async names(): Promise<ReadonlySet<string>> {
    await this.#connection.ready();
    const { list } = SnapshotsService.method;
    const call = this.#connection.serverStream(list, { snapshotter: this.snapshotter });
    const found = new Set<string>();
    return new Promise((resolve, reject) => {
      call.on('data', ({ info }: ListSnapshotsResponse) => {
        for (const { name } of info) found.add(name);
      });
      call.on('error', (error) => reject(fromGrpc(error, list.name)));
      call.on('end', () => resolve(found));
    });
  }

  async makeLease(lease: string): Promise<void> {
    await unlessTaken(this.#leases.create({ id: lease }));
  }

  async held(lease: string): Promise<readonly string[] | undefined> {
    try {
      const { resources } = await this.#leases.listResources({ id: lease });
      return resources.flatMap(({ id, type }) => (type === this.#type ? [id] : []));
    } catch (error) {
      if (isEngineError(error, 'not-found')) return undefined;
      throw error;
    }
  }

  async hold(lease: string, names: readonly string[]): Promise<void> {
    for (const id of names) await this.#leases.addResource({ id: lease, resource: { id, type: this.#type } });
  }

  async letGo(lease: string, names: readonly string[]): Promise<void> {
    for (const id of names) {
      try {
        await this.#leases.deleteResource({ id: lease, resource: { id, type: this.#type } });
      } catch (error) {
        if (!isEngineError(error, 'not-found')) throw error;
      }
    }
  }

  /** The service has no call for a collection of its own; the deletion of a lease waits for one. */
  async collect(): Promise<void> {
    const id = `collection-${randomUUID()}`;
    const labels = { [EXPIRE_LABEL]: new Date(Date.now() + COLLECTION_MS).toISOString() };
    await this.#leases.create({ id, labels });
    await this.#leases.delete({ id, sync: true });
  }

  get #type(): string {
    return `snapshots/${this.snapshotter}`;
  }
}

const mountsOf = ({ mounts }: { readonly mounts: readonly Mount[] }): SnapshotMount[] =>
  mounts.map(({ type, source, options }) => ({ type, source, options }));

async function unlessTaken<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (isTaken(error)) return undefined;
    throw error;
  }
}
