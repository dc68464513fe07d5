/**
 * Worker threads whose code was read when the daemon started, so that they can be started as long as it runs, even when
 * its files have been replaced or deleted meanwhile. The bundle (scripts/bundle.mjs) gives this class to piscina in
 * place of Node's Worker: the file that piscina names is part of the code that is held here.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Worker as NodeWorker, type WorkerOptions } from 'node:worker_threads';
import { LOAD_SCRIPT, type ThreadData } from './thread-script.js';

export { receiveMessageOnPort } from 'node:worker_threads';

/** The name of the script, with the hash of its content, so that it never meets the code of another one. */
declare const ENGINED_THREAD: string;

const text = readFileSync(new URL(ENGINED_THREAD, import.meta.url), 'latin1');
const code = readCode(new URL(ENGINED_THREAD.replace(/cjs$/, 'code'), import.meta.url));
let library: string | undefined;

export class Worker extends NodeWorker {
  constructor(_file: string, options: WorkerOptions) {
    library ??= nativeLibrary();
    super(LOAD_SCRIPT, { ...options, eval: true, workerData: { text, code, library } satisfies ThreadData });
  }
}

/** Reads V8's code of the script into memory that all threads share. */
function readCode(url: URL): Uint8Array | undefined {
  if (!existsSync(url)) return undefined;
  const bytes = readFileSync(url);
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  return shared;
}

/**
 * Returns the library of koffi, which the process has loaded already: a thread gets it by name and does not need its
 * file.
 */
function nativeLibrary(): string | undefined {
  return Object.keys(createRequire(import.meta.url).cache).find((path) => path.endsWith('/koffi.node'));
}
