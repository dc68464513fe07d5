/**
 * Connections to the shims of tasks, for calls that need no containerd: it would only pass them on, which takes as long
 * as the call itself.
 */
import { join } from 'node:path';
import { shimAddress } from './shim-address.js';
import { ShimConnection } from './shim-connection.js';
import type { ShimPool } from './shim-pool.js';

/** A shim that is called once is mostly called again soon, as for health checks. */
const IDLE_MS = 40_000;

interface Kept {
  readonly connection: ShimConnection;
  readonly timer: NodeJS.Timeout;
}

export class TaskShims {
  /** containerd's directory of running tasks. Undefined: it is unknown, and so are the shims. */
  readonly #dir: string | undefined;
  readonly #pool: Pick<ShimPool, 'connectionOf'> | undefined;
  readonly #kept = new Map<string, Kept>();

  constructor(dir: string | undefined, pool: Pick<ShimPool, 'connectionOf'> | undefined) {
    this.#dir = dir;
    this.#pool = pool;
  }

  /** Returns a connection to the shim of a task; undefined when there is none and containerd has to be asked. */
  async of(id: string): Promise<ShimConnection | undefined> {
    const pooled = this.#pool?.connectionOf(id);
    if (pooled !== undefined || this.#dir === undefined) return pooled;
    const kept = this.#kept.get(id);
    kept?.timer.refresh();
    return kept?.connection ?? this.#connect(id, join(this.#dir, id));
  }

  /** Closes the connection to the shim of a task that is gone. */
  forget(id: string): void {
    this.#kept.get(id)?.connection.close();
  }

  close(): void {
    for (const { connection } of this.#kept.values()) connection.close();
  }

  async #connect(id: string, bundle: string): Promise<ShimConnection | undefined> {
    const address = await shimAddress(bundle).catch(() => undefined);
    if (address === undefined) return undefined;
    const connection = new ShimConnection(address.path, address.service);
    const isOpen = await connection.opened.then(
      () => true,
      () => false,
    );
    if (!isOpen) return undefined;
    // Another call may have been faster.
    if (this.#kept.has(id)) {
      connection.close();
      return this.of(id);
    }
    const timer = setTimeout(() => (connection.isBusy ? timer.refresh() : connection.close()), IDLE_MS).unref();
    const kept = { connection, timer };
    this.#kept.set(id, kept);
    void connection.closed.then(() => {
      clearTimeout(timer);
      if (this.#kept.get(id) === kept) this.#kept.delete(id);
    });
    return connection;
  }
}
