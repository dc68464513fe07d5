/**
 * A worker thread is started with these: the script with all its tasks as a text, and the code that V8 made of it at
 * build time. Compiling it again would take a third of the processor time that a thread needs to start.
 */
import type { ThreadMark } from '../sys/process/changed-thread.js';

export interface ThreadData extends ThreadMark {
  /** A function of `require` and `exports`, as source. */
  readonly text: string;
  /** V8 refuses code that another version of Node or other flags made; then, and without any, it compiles the text. */
  readonly code: Uint8Array | undefined;
  /** The file of koffi's library, which the process has loaded already. */
  readonly library: string | undefined;
}

/** The first text that a thread runs. Its `workerData` is a ThreadData. */
export const LOAD_SCRIPT = `
const { workerData: { text, code } } = require('node:worker_threads');
const { Script } = require('node:vm');
const script = new Script(text, { filename: 'thread.cjs', ...(code && { cachedData: code }) });
script.runInThisContext()(require, {});
`;
