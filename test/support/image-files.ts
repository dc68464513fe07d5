/**
 * Looks at the files of images by a container that is made and never started, because one that runs takes 100 ms more
 * of processor time.
 */
import { execFileSync } from 'node:child_process';
import { engineOk } from './engine-commands.js';
import type { Engine } from './engine.js';
import { call } from './http.js';

/** Returns what a file contains. */
export async function fileOf(engine: Engine, image: string, path: string): Promise<string> {
  return execFileSync('tar', ['-xO'], { input: await archiveOf(engine, image, path), encoding: 'utf8' });
}

/** Returns the names of what is in a directory and below it, with the directory's own name before each, sorted. */
export async function namesIn(engine: Engine, image: string, path: string): Promise<string[]> {
  const names = execFileSync('tar', ['-t'], { input: await archiveOf(engine, image, path), encoding: 'utf8' });
  return names.split('\n').filter(Boolean).toSorted();
}

async function archiveOf(engine: Engine, image: string, path: string): Promise<Buffer> {
  const id = await engineOk(engine, ['create', '--network', 'none', image, '/none']);
  try {
    const { status, body } = await call(engine.socketPath, 'GET', `/containers/${id}/archive?path=${path}`);
    if (status !== 200) throw new Error(`${path} of ${image}: ${body.toString()}`);
    return body;
  } finally {
    await engineOk(engine, ['rm', id]);
  }
}
