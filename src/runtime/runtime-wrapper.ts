/** Programs that call a runtime with arguments of its own before those of the shim, which only knows a path. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The path of such a program in `dir`. Made when it is first needed: a few bytes, which need not survive the machine.
 */
export function wrapRuntime(dir: string, runtime: string, args: readonly string[]): string {
  const text = `#!/bin/sh\nexec ${[runtime, ...args].map(quoted).join(' ')} "$@"\n`;
  const path = join(dir, createHash('sha256').update(text).digest('hex').slice(0, 32));
  if (existsSync(path)) return path;
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  writeFileSync(`${path}.new`, text, { mode: 0o700 });
  renameSync(`${path}.new`, path);
  return path;
}

/** One word for the shell, whatever is in it. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
