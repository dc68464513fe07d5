/** The pidfile: tells others which process the daemon is, and a second daemon that there is one. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { conflict } from '../errors/engine-error.js';

/** Writes our pid. A file of a process that is gone is replaced. @throws EngineError conflict when it is alive. */
export async function claimPidfile(path: string): Promise<void> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const pid = Number(text.trim());
  if (/^\d+$/.test(text.trim()) && pid !== process.pid && isAlive(pid)) {
    throw conflict(`process ${pid} named by the pidfile ${path} is running: stop it, or choose another --pidfile, --data-root and --exec-root`);
  }
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, `${process.pid}\n`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
