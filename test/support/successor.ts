/** A daemon that another one has handed over to: no child of the test, so it is known by its pidfile. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Engine } from './engine.js';
import { waitFor } from './wait.js';

/** @throws the error of reading the pidfile, when there is none. */
export function daemonPid(engine: Engine): number {
  return Number(readFileSync(join(engine.dir, 'engine.pid'), 'utf8'));
}

export async function endDaemon(engine: Engine): Promise<void> {
  const pid = daemonPid(engine);
  process.kill(pid, 'SIGTERM');
  await waitFor('the daemon to end', () => !existsSync(`/proc/${pid}/exe`), 60_000);
}
