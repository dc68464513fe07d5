/**
 * One daemon for several test files that run in one process, one after the other (scripts/import-tests.mjs). A start,
 * an end, and code that has not run yet take more processor time than all that most of these files ask for. Each
 * begins with what a new daemon has: what it leaves is taken away.
 */
import type { SeededRegistry } from './busybox-image.js';
import { Cleanup } from './cleanup.js';
import type { Engine } from './engine.js';
import { call, callJson } from './http.js';
import { pullOk } from './pulls.js';

/** Set for a process whose files share a daemon. */
const SHARES = 'TEST_SHARES_ENGINE';

export interface Scene {
  readonly engine: Engine;
  /** The reference by which the engine knows its one image. */
  readonly image: string;
  /** Where the image can be pulled from. It keeps what files push, so their names differ. */
  readonly registry?: SeededRegistry;
}

const own = new Cleanup();
let started: Promise<Scene> | undefined;

export function isSharing(): boolean {
  return process.env[SHARES] !== undefined;
}

/** Starts the daemon unless an earlier file has; `cleanup` leaves it to the next file as it was. */
export async function shareEngine(cleanup: Cleanup, start: (cleanup: Cleanup) => Promise<Scene>): Promise<Scene> {
  started ??= start(own);
  const scene = await started;
  cleanup.add(() => tidy(scene));
  return scene;
}

/** Has something else ended together with what these files share. */
export function closeWithShared(close: () => Promise<void>): void {
  own.add(close);
}

/** Ends the daemon and checks that nothing is left. */
export async function closeShared(): Promise<void> {
  await own.run();
}

/** Removes everything that a file has made. What is in use cannot be removed, and fails the file. */
export async function tidy({ engine, image, registry }: Scene): Promise<void> {
  const { socketPath } = engine;
  const list = <T>(path: string): Promise<T> => callJson<T>(socketPath, 'GET', path);
  const remove = async (path: string): Promise<void> => {
    const reply = await call(socketPath, 'DELETE', path);
    if (reply.status >= 400 && reply.status !== 404) throw new Error(`DELETE ${path} gave ${reply.text}`);
  };
  for (const { Id } of await list<readonly { Id: string }[]>('/containers/json?all=1'))
    await remove(`/containers/${Id}?force=1&v=1`);
  const { Volumes } = await list<{ Volumes: readonly { Name: string; Driver: string }[] | null }>('/volumes');
  // Those of plugins may be another daemon's: all daemons of a machine find the same plugins.
  for (const { Name, Driver } of Volumes ?? [])
    if (Driver === 'local') await remove(`/volumes/${encodeURIComponent(Name)}`);
  for (const { Id, Name } of await list<readonly { Id: string; Name: string }[]>('/networks'))
    if (!['bridge', 'host', 'none'].includes(Name)) await remove(`/networks/${Id}`);
  await callJson(socketPath, 'POST', '/build/prune?all=1');
  // A file may have removed what can be pulled again.
  if (registry !== undefined) await pullOk(engine, image);
  const kept = await list<{ Id: string }>(`/images/${encodeURIComponent(image)}/json`);
  for (const { Id, RepoTags } of await list<readonly { Id: string; RepoTags: readonly string[] | null }[]>(
    '/images/json',
  )) {
    if (Id !== kept.Id) await remove(`/images/${Id}?force=1`);
    else for (const tag of RepoTags ?? []) if (tag !== image) await remove(`/images/${encodeURIComponent(tag)}`);
  }
}
