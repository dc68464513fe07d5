import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { waitFor } from '../test/support/wait.js';
import type { Logger } from './ports/logger.js';
import { ServiceManager } from './service-manager.js';

/** Takes messages in another process, which stops when it is told, so that they stay in the socket's queue. */
async function receiver(t: TestContext): Promise<{ path: string; process: ChildProcess; heard: () => string[] }> {
  const directory = mkdtempSync(join(tmpdir(), 'manager-'));
  const path = join(directory, 'notify.sock');
  const module = new URL('../test/support/notifications.js', import.meta.url).href;
  const script = `
    import { receiveNotifications } from ${JSON.stringify(module)};
    const { all } = receiveNotifications(${JSON.stringify(path)});
    let told = 0;
    const tell = () => { for (; told < all.length; told++) console.log(JSON.stringify(all[told])); };
    console.log('"ready"');
    setInterval(tell, 10);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    rmSync(directory, { recursive: true });
  });
  let output = '';
  child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
  const heard = (): string[] => output.split('\n').flatMap((line) => (line === '' ? [] : [String(JSON.parse(line))]));
  await waitFor('the receiver', () => heard().length > 0);
  return { path, process: child, heard };
}

test('a socket to be kept waits for a service manager that is behind, and what is told again does not', async (t) => {
  const { path, process: child, heard } = await receiver(t);
  const lost: string[] = [];
  const log: Logger = {
    debug: (_fields, message) => void lost.push(message),
    info: () => undefined,
    warn: (_fields, message) => void lost.push(message),
    error: () => undefined,
    child: () => log,
  };
  const manager = new ServiceManager({ NOTIFY_SOCKET: path, FDSTORE: '64' }, log);
  child.kill('SIGSTOP');
  while (lost.length === 0) manager.status('something');
  const waker = spawn('sh', ['-c', `sleep 0.2; kill -CONT ${child.pid}`], { stdio: 'ignore' });
  const awake = once(waker, 'exit');
  const file = openSync('/dev/null', 'r');
  manager.store.keep('a', file);
  closeSync(file);
  assert.equal(manager.store.outlives('a'), true);
  assert.deepEqual(lost, ['the service manager could not be told']);
  await awake;
  await waitFor('the socket', () => heard().at(-1)?.startsWith('FDSTORE=1\n') === true);
});
