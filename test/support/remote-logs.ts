/** Containers whose output goes to a log driver, and what tests set for all of them. */
import type { Cleanup } from './cleanup.js';
import { engineOk } from './engine-commands.js';
import type { Engine } from './engine.js';
import { callJson } from './http.js';

export const DEFAULTS = [
  '--log-opt',
  'env=TIER',
  '--log-opt',
  'labels=team',
  '--log-opt',
  'tag={{.Name}}/{{.ImageName}}',
  '-e',
  'TIER=front',
  '--label',
  'team=blue',
];
export const BOTH = 'echo to stdout; sleep 0.2; echo to stderr >&2';

/** The flags for a driver with options `name=value`. */
export function logFlags(driver: string, options: readonly string[]): string[] {
  return ['--log-driver', driver, ...options.flatMap((option) => ['--log-opt', option])];
}

/** Runs a container to its end, and gives its name and its id. It is removed with `cleanup`. */
export async function runLogged(
  { engine, image, cleanup }: { readonly engine: Engine; readonly image: string; readonly cleanup: Cleanup },
  flags: readonly string[],
  script: string,
): Promise<{ readonly name: string; readonly id: string }> {
  const name = `c${Math.random().toString(36).slice(2, 8)}`;
  await engineOk(engine, ['run', '--name', name, ...flags, image, 'sh', '-c', script]);
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'GET', `/containers/${name}/json`);
  cleanup.add(() => engineOk(engine, ['rm', '-f', name]));
  return { name, id: Id };
}
