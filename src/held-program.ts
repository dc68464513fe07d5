/**
 * Loads the program of the bundle (scripts/bundle.mjs): one script, and the code that V8 made of it at build time, so
 * that a start need not compile two megabytes again.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Script } from 'node:vm';
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

/** Loads the script at `url` and all parts of the daemon, and returns V8's code of them and the place to keep it. */
export async function compileProgram(url: URL): Promise<{ code: Buffer; file: URL }> {
  const { program, script } = run(url, undefined);
  await program.loadDaemon();
  return { code: script.createCachedData(), file: codeUrl(url) };
}

function run(url: URL, code: Buffer | undefined): { program: Program; script: Script } {
  // It has only ASCII, and this is the fastest way to a string of one byte per character.
  const text = readFileSync(url, 'latin1');
  const script = new Script(text, { filename: url.pathname, ...(code && { cachedData: code }) });
  const module = { exports: {} as Program };
  (script.runInThisContext() as Wrapper)(module, createRequire(url), url.href);
  return { program: module.exports, script };
}

/** The script's name has the hash of its content, so it never meets the code of another one. */
function codeUrl(url: URL): URL {
  return new URL(url.href.replace(/cjs$/, 'code'));
}
