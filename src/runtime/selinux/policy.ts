/** Finds what the loaded policy of this host has for containers. */
import { writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Context, parseContext } from './context.js';
import type { SeLinuxPolicy } from './selinux.js';

/** The package of policies for containers brings this file; it comes before that of the policy itself. */
const CONTAINER_CONTEXTS = '/usr/share/containers/selinux/contexts';
const SELINUX_CONFIG = '/etc/selinux/config';
const POLICIES = '/etc/selinux';
/** The kernel refuses to take a context that the policy does not know. */
const CONTEXT_FILE = '/sys/fs/selinux/context';

/** Returns the policy; undefined when it has no contexts for containers. */
export async function readPolicy(): Promise<SeLinuxPolicy | undefined> {
  const read = (path: string): Promise<string | undefined> => readFile(path, 'utf8').catch(() => undefined);
  const own = await read(CONTAINER_CONTEXTS);
  const name = /^SELINUXTYPE=([\w.-]+)\s*$/m.exec((await read(SELINUX_CONFIG)) ?? '')?.[1] ?? 'targeted';
  const text = own ?? (await read(join(POLICIES, name, 'contexts', 'lxc_contexts'))) ?? '';
  const contexts = containerContexts(text);
  return contexts && { ...contexts, isValid: (context) => isValid(context) };
}

/** Reads the lines `process = "…"` and `file = "…"`. */
export function containerContexts(text: string): { process: Context; file: Context } | undefined {
  const found = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [, key, value] = /^(process|file)\s*=\s*"?([^"\s]+)"?\s*$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined) found.set(key, value);
  }
  const [process, file] = ['process', 'file'].map((key) => parseContext(found.get(key) ?? ''));
  return process && file ? { process, file } : undefined;
}

/**
 * Asks the kernel. A policy may forbid the daemon to ask: then the context counts as known, and the start of the
 * container fails if it is not.
 */
export function isValid(context: string, ask: (context: string) => void = askKernel): boolean {
  try {
    ask(context);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'EINVAL';
  }
}

function askKernel(context: string): void {
  writeFileSync(CONTEXT_FILE, context);
}
