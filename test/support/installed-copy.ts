/** The daemon as it would be installed, in a place of its own: to be replaced or deleted while it runs. */
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Cleanup } from './cleanup.js';

/** This file is in dist/test/support. */
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
/** The bundle does not contain these packages. */
const PACKAGES = ['koffi', '@koromix', 'uWebSockets.js'];

export interface InstalledCopy {
  /** The program of the copy. */
  readonly main: string;
  /** Takes away all of it. */
  delete(): void;
}

export function installCopy(cleanup: Cleanup): InstalledCopy {
  const dir = mkdtempSync(join(tmpdir(), 'installed-'));
  const remove = (): void => rmSync(dir, { recursive: true, force: true });
  cleanup.add(async () => remove());
  mkdirSync(join(dir, 'node_modules'));
  const own = `uws_linux_${process.arch}_${process.versions.modules}.node`;
  // There is a library for each kind of machine, of which one is enough.
  const filter = (path: string): boolean => !/^uws_.*\.node/.test(basename(path)) || basename(path) === own;
  for (const name of PACKAGES) {
    cpSync(join(ROOT, 'node_modules', name), join(dir, 'node_modules', name), { recursive: true, filter });
  }
  cpSync(join(ROOT, 'package.json'), join(dir, 'package.json'));
  cpSync(join(ROOT, 'dist', 'bundle'), join(dir, 'dist', 'bundle'), { recursive: true });
  return { main: join(dir, 'dist', 'bundle', 'main.js'), delete: remove };
}
