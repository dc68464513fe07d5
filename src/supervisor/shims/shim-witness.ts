/**
 * Hears of exits that happen while there is no containerd. When containerd 1.7 or 2 starts, it deletes the tasks whose
 * process has ended meanwhile, together with their exit codes: so the daemon asks their shims before that, and listens
 * to them until containerd is up.
 */
import { create } from '@bufbuild/protobuf';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessRef } from '../exits/exit-watch.js';
import type { HeardExits } from '../exits/heard-exits.js';
import { StateResponseSchema, WaitResponseSchema } from '../proto/gen/shim_pb.js';
import { ProcessSchema, Status, type Process } from '../proto/gen/task_types_pb.js';
import { shimAddress } from './shim-address.js';
import { ShimConnection } from './shim-connection.js';

/** A shim answers in a millisecond; the start waits only this long for one that does not. */
const ANSWER_MS = 2_000;

export class ShimWitness {
  readonly #connections: ShimConnection[] = [];
  readonly #heard: HeardExits;

  private constructor(heard: HeardExits) {
    this.#heard = heard;
  }

  /**
   * Asks all shims of a namespace about their init processes, and about `processes`. What they tell until `close` is
   * added to `heard`.
   * @param dir containerd's directory of the running tasks of a namespace.
   */
  static async listen(dir: string, heard: HeardExits, processes: readonly ProcessRef[]): Promise<ShimWitness> {
    const witness = new ShimWitness(heard);
    // There is no such directory before the first task.
    const ids = await readdir(dir).catch(() => []);
    const asked = ids.map(async (id) => {
      const execs = processes.filter((process) => process.id === id && process.execId !== '');
      // A shim that cannot be asked is left to containerd.
      await witness.#listenTo(join(dir, id), [{ id, execId: '' }, ...execs]).catch(() => undefined);
    });
    const timer = new AbortController();
    const timeUp = delay(ANSWER_MS, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([Promise.all(asked), timeUp]);
    timer.abort();
    return witness;
  }

  /** Stops listening. */
  close(): void {
    for (const connection of this.#connections) connection.close();
  }

  async #listenTo(bundle: string, processes: readonly ProcessRef[]): Promise<void> {
    const address = await shimAddress(bundle);
    if (address === undefined) return;
    const shim = new ShimConnection(address.path, address.service);
    this.#connections.push(shim);
    await Promise.all(processes.map((process) => this.#ask(shim, process)));
  }

  async #ask(shim: ShimConnection, ref: ProcessRef): Promise<void> {
    const { id, execId } = ref;
    const { $typeName: _, ...state } = await shim.ask('State', StateResponseSchema, ref);
    const heard = ({ exitStatus, exitedAt }: Pick<Process, 'exitStatus' | 'exitedAt'>): void => {
      const process = create(ProcessSchema, { ...state, id: execId || id, status: Status.STOPPED, exitStatus });
      this.#heard.add(ref, exitedAt === undefined ? process : { ...process, exitedAt });
    };
    if (state.status === Status.STOPPED) heard(state);
    else if (state.status !== Status.CREATED)
      void shim
        .ask('Wait', WaitResponseSchema, ref)
        .then(heard)
        .catch(() => undefined);
  }
}
