/** Finds out whether fuse-overlayfs works here, and in which version. */
import { existsSync, lstatSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type EngineError, messageOf, unavailable } from '../../../errors/engine-error.js';
import { isOnPath } from '../../../sys/process/on-path.js';
import { runProgram } from '../../../sys/process/spawn.js';
import { toBytePath } from '../../byte-path.js';
import { isOpaque, isWhiteout } from '../../layers/marks.js';
import { type FuseServers, PROGRAM } from './servers.js';
import { settleOpaque } from './tasks.js';

const DEVICE = '/dev/fuse';

const refused = (message: string, cause?: unknown): EngineError =>
  unavailable(`storage driver ${PROGRAM}: ${message}`, {
    code: 'FUSE_UNSUPPORTED',
    ...(cause === undefined ? {} : { cause }),
  });

/** @throws EngineError unavailable when the program or the device is missing. */
export function checkProgram(): void {
  if (!isOnPath(PROGRAM)) throw refused(`the program ${PROGRAM} is not installed (Debian package fuse-overlayfs)`);
  if (!existsSync(DEVICE)) throw refused(`this host has no ${DEVICE} (modprobe fuse)`);
}

/**
 * Mounts a small file system in `directory` (it exists and is empty, the caller deletes it), and looks whether deleted
 * names and replaced directories get the marks that layers have.
 * @throws EngineError unavailable with the reason.
 */
export async function probeFuse(directory: string, servers: FuseServers): Promise<void> {
  const at = (name: string): string => join(directory, name);
  for (const name of ['lower', 'lower/replaced', 'upper', 'work', 'merged']) await mkdir(at(name));
  await writeFile(at('lower/deleted'), '');
  await writeFile(at('lower/replaced/file'), '');
  try {
    await servers.start(`lowerdir=${at('lower')},upperdir=${at('upper')},workdir=${at('work')}`, at('merged'));
  } catch (error) {
    throw refused(messageOf(error), error);
  }
  try {
    await rm(at('merged/deleted'));
    await rm(at('merged/replaced'), { recursive: true });
    await mkdir(at('merged/replaced'));
    settleOpaque(toBytePath(at('upper/replaced')));
    const isMarked = isWhiteout(lstatSync(at('upper/deleted'))) && isOpaque(toBytePath(at('upper/replaced')));
    if (!isMarked) throw refused('it cannot mark deleted files on the file system of the data root');
  } finally {
    await servers.stop(at('merged'));
  }
}

/** Returns rows for `info`. */
export async function versionRows(): Promise<[string, string][]> {
  const { stdout } = await runProgram(PROGRAM, ['--version']);
  const versionAfter = (words: string): string => {
    const line = stdout.split('\n').find((text) => text.startsWith(words));
    return line?.slice(words.length).trim() ?? 'unknown';
  };
  return [
    ['fuse-overlayfs Version', versionAfter('fuse-overlayfs: version')],
    ['FUSE Library Version', versionAfter('FUSE library version')],
  ];
}
