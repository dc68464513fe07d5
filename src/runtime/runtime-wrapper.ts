/**
 * Makes programs that call a runtime with its own arguments before those of the shim, because the shim only knows a
 * path.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Returns the path of such a program in `dir`. It is made when it is first needed. It need not survive a crash of the
 * machine.
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

/** Quotes a text as one word for the shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
