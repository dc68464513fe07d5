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
import type { IdMaps } from '../ports/id-maps.js';
import { closeFd } from '../sys/files/fd.js';
import { createWorkerPool } from '../workers/pool.js';
import { portStream } from './port-stream.js';
import { sendPieces } from './send-pieces.js';
import { Credit } from './tasks/credit.js';

/**
 * Copies have their own threads: a copy lasts as long as its client likes, and the files of a container may be slow.
 */
const THREADS = 4;
const COPIES_PER_THREAD = 16;

export class ArchiveWorkers implements Archives {
  readonly #pool = createWorkerPool({ maxThreads: THREADS, tasksPerThread: COPIES_PER_THREAD });

  /** @param idMaps maps the owners of files to those in containers, and in archives. */
  constructor(private readonly idMaps: IdMaps | undefined) {}

  close(): Promise<void> {
    return this.#pool.close();
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
