import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { endShims, findShims } from './orphans.js';

const dir = mkdtempSync(join(tmpdir(), 'orphans-'));
after(() => rmSync(dir, { recursive: true }));
const realm = { socket: join(dir, 'containerd.sock'), namespace: 'tests' };

test('a shim in a container belongs to the daemon there, though it has the same places', async (t) => {
  const program = join(dir, 'containerd-shim-runc-v2');
  writeFileSync(program, '#!/bin/sh\necho ready\nread line\n');
  chmodSync(program, 0o755);
  const ends = new Map<string, Promise<unknown>>();
  const start = async (id: string, ...before: string[]): Promise<void> => {
    const args = [program, '-namespace', realm.namespace, '-id', id, '-address', realm.socket];
    const [command = '', ...rest] = [...before, ...args];
    // It ends with its input.
    const child = spawn(command, rest, { stdio: ['pipe', 'pipe', 'inherit'] });
    t.after(() => child.stdin.destroy());
    ends.set(id, once(child, 'exit'));
    await once(child.stdout, 'data');
  };
  await start('ours');
  await start('inner', 'unshare', '--pid', '--fork');
  assert.deepEqual(
    (await findShims(realm)).map(({ id }) => id),
    ['ours'],
  );
  assert.deepEqual(await endShims(realm, () => true), ['ours']);
  await ends.get('ours');
  assert.equal(await Promise.race([ends.get('inner'), Promise.resolve('goes on')]), 'goes on');
});
