/**
 * Loads the program of the bundle (scripts/bundle.mjs): one script, and the code that V8 made of it at build time, so
 * that a start need not compile two megabytes again.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Script } from 'node:vm';
import { freeBuffer } from './sys/process/free-buffer.js';
import type * as CommandLine from './command-line.js';

type Program = typeof CommandLine;
type Wrapper = (module: { exports: Program }, require: NodeJS.Require, url: string) => void;

/**
 * Returns what the script at `url` exports. V8 refuses code that another version of Node or other flags made; then, and
 * when there is none, it compiles the script.
 */
export function loadProgram(url: URL): Program {
  const code = codeUrl(url);
  return run(url, existsSync(code) ? readFileSync(code) : undefined).program;
}

/** A program that was compiled anew, for the build. */
export interface CompiledProgram {
  readonly program: Program;
  /** Where V8's code is to be kept. */
  readonly file: URL;
  /** Returns V8's code of all functions that have run by now. */
  code(): Buffer;
}

/** Compiles the script at `url`, whatever code is kept, and loads all parts of the daemon. */
export async function compileProgram(url: URL): Promise<CompiledProgram> {
  const { program, script } = run(url, undefined);
  await program.loadDaemon();
  return { program, file: codeUrl(url), code: () => script.createCachedData() };
}

function run(url: URL, code: Buffer | undefined): { program: Program; script: Script } {
  // It has only ASCII, and this is the fastest way to a string of one byte per character.
  const text = readFileSync(url, 'latin1');
  const script = new Script(text, { filename: url.pathname, ...(code && { cachedData: code }) });
  // V8 has made functions of it, and would keep the four megabytes until it collects its whole heap.
  if (code) freeBuffer(code);
  const module = { exports: {} as Program };
  (script.runInThisContext() as Wrapper)(module, createRequire(url), url.href);
  return { program: module.exports, script };
}

/** The script's name has the hash of its content, so it never meets the code of another one. */
function codeUrl(url: URL): URL {
  return new URL(url.href.replace(/cjs$/, 'code'));
}
