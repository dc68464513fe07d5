/** Copies in and out of containers, in worker threads. The contract is in ports/archives.ts. */
import { once } from 'node:events';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { internal } from '../errors/engine-error.js';
import type {
  Archives,
  ArchiveSource,
  ContainerView,
  PathStat,
  TarOutput,
  WriteOptions,
  Written,
} from '../ports/archives.js';
import type { IdMaps, Owner } from '../ports/id-maps.js';
import { closeFd } from '../sys/files/fd.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { createWorkerPool } from '../workers/pool.js';
import { endLoan, failLoan, makeLoan, WRITER_WANTED } from './lent-writer.js';
import { portStream } from './port-stream.js';
import { sendPieces } from './send-pieces.js';
import { Credit } from './tasks/credit.js';

/**
 * Copies have their own threads: a copy lasts as long as its client likes, and the files of a container may be slow.
 */
const THREADS = 4;
const COPIES_PER_THREAD = 16;
/** So many of them have a second thread, which writes, as there are mostly as many processors. */
const WRITERS = 2;

export class ArchiveWorkers implements Archives {
  readonly #pool = createWorkerPool({ maxThreads: THREADS, tasksPerThread: COPIES_PER_THREAD });
  readonly #writers = createWorkerPool({ maxThreads: WRITERS });
  #lent = 0;
  /** Memory of a loan that is over, for the next one, if that is before a collection: shared memory cannot be freed. */
  #spare: WeakRef<SharedArrayBuffer> | undefined;

  /** @param idMaps maps the owners of files to those in containers, and in archives. */
  constructor(private readonly idMaps: IdMaps | undefined) {}

  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.#writers.close()]);
  }

  stat(view: ContainerView, path: string): Promise<PathStat> {
    return this.#pool.run('path-stat', { view, path, idMaps: view.maps ?? this.idMaps });
  }

  async read(view: ContainerView, path: string): Promise<TarOutput & { stat: PathStat }> {
    const { port1: near, port2: far } = new MessageChannel();
    const task = this.#pool.run(
      'copy-out',
      { view, path, idMaps: view.maps ?? this.idMaps, port: far },
      { transferList: [far] },
    );
    try {
      const first = once(near, 'message').then(([stat]) => stat as PathStat);
      const stat = await Promise.race([
        first,
        task.then(() => Promise.reject(internal('the archive ended before it began'))),
      ]);
      return { stat, ...follow(near, task) };
    } catch (error) {
      near.close();
      throw error;
    }
  }

  readDirectory(directory: string, maps?: IdMaps, mtimeSeconds?: number): TarOutput {
    const { port1: near, port2: far } = new MessageChannel();
    return follow(
      near,
      this.#pool.run(
        'export-directory',
        { directory, idMaps: maps ?? this.idMaps, mtimeSeconds, port: far },
        { transferList: [far] },
      ),
    );
  }

  async write(view: ContainerView, path: string, options: WriteOptions, source: ArchiveSource): Promise<Written> {
    const { port1: near, port2: far } = new MessageChannel();
    const task = this.#pool.run(
      'copy-in',
      { view, path, options, idMaps: view.maps ?? this.idMaps, port: far },
      { transferList: [far] },
    );
    // The promise may fail before anybody awaits it.
    task.catch(() => undefined);
    near.on('message', (message) => {
      if (message === WRITER_WANTED) this.#lend(near, task, rootOwner(view.maps ?? this.idMaps));
    });
    const wanted = new Credit(near);
    let lentFd: number | undefined;
    try {
      // The source is read only when its place is found.
      if (await wanted.take()) {
        if ('lend' in source) {
          const body = source.lend();
          lentFd = body.fd;
          near.postMessage(body, []);
        } else await sendPieces(source, near);
      }
    } catch (error) {
      near.close();
      // The task fails only as a consequence.
      await task.catch(() => undefined);
      throw error;
    }
    return task.finally(() => void (lentFd === undefined || closeFd(lentFd)));
  }

  /** Starts a thread that writes for a copy, unless there are enough of them: then the copy asks again. */
  #lend(copy: MessagePort, task: Promise<unknown>, owner: Owner): void {
    if (this.#lent === WRITERS) return;
    this.#lent += 1;
    const loan = makeLoan(owner, this.#spare?.deref());
    this.#spare = undefined;
    copy.postMessage(loan, []);
    const served = this.#writers.run('write-behind', loan).catch(() => failLoan(loan));
    void served.then(() => (this.#lent -= 1));
    // A copy gives it back itself, unless its thread has failed.
    void Promise.allSettled([served, task.finally(() => endLoan(loan))]).then(
      () => (this.#spare = new WeakRef(loan.memory)),
    );
  }
}

function follow(near: MessagePort, task: Promise<void>): TarOutput {
  const tar = portStream(near);
  // The receiver of the tar does not listen to errors of the stream.
  tar.on('error', () => undefined);
  const ended = task.then(
    () => undefined,
    (error: unknown) => void tar.destroy(error as Error),
  );
  const sendTo = (socketFd: number): Promise<void> => {
    near.postMessage(socketFd, []);
    return task;
  };
  return { tar, sendTo, ended };
}
