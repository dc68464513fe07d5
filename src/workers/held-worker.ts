/**
 * Worker threads whose code was read when the daemon started, so that they can be started as long as it runs, even when
 * its files have been replaced or deleted meanwhile. The bundle (scripts/bundle.mjs) gives this class to piscina in
 * place of Node's Worker: the file that piscina names is part of the code that is held here.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Worker as NodeWorker, type WorkerOptions } from 'node:worker_threads';

export { receiveMessageOnPort } from 'node:worker_threads';

const code = readFileSync(new URL('thread.cjs', import.meta.url), 'utf8');
let library: string | undefined;

export class Worker extends NodeWorker {
  constructor(_file: string, options: WorkerOptions) {
    library ??= nativeLibrary();
    super(code, { ...options, eval: true, workerData: library });
  }
}

/**
 * Returns the library of koffi, which the process has loaded already: a thread gets it by name and does not need its
 * file.
 */
function nativeLibrary(): string | undefined {
  return Object.keys(createRequire(import.meta.url).cache).find((path) => path.endsWith('/koffi.node'));
}
