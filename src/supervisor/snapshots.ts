/** Snapshots and leases of one containerd namespace, over gRPC. */
import type { SnapshotMount, Snapshots } from '../ports/snapshots.js';
import { fromGrpc, isTaken } from './grpc-error.js';
import type { GrpcConnection, UnaryClient } from './grpc-connection.js';
import { ContainerdLeases } from './leases.js';
import type { Mount } from './proto/gen/mount_pb.js';
import { type ListSnapshotsResponse, Snapshots as SnapshotsService } from './proto/gen/snapshots_pb.js';

export class ContainerdSnapshots implements Snapshots {
  readonly #connection: GrpcConnection;
  readonly #service: UnaryClient<typeof SnapshotsService>;
  readonly #leases: ContainerdLeases;

  constructor(
    connection: GrpcConnection,
    readonly snapshotter: string,
  ) {
    this.#connection = connection;
    this.#service = connection.unary(SnapshotsService);
    this.#leases = new ContainerdLeases(connection);
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

  makeLease(lease: string): Promise<void> {
    return this.#leases.make(lease);
  }

  held(lease: string): Promise<readonly string[] | undefined> {
    return this.#leases.held(lease, this.#type);
  }

  hold(lease: string, names: readonly string[]): Promise<void> {
    return this.#leases.hold(lease, this.#type, names);
  }

  letGo(lease: string, names: readonly string[]): Promise<void> {
    return this.#leases.letGo(lease, this.#type, names);
  }

  collect(): Promise<void> {
    return this.#leases.collect();
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
