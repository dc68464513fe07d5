import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildDevices } from './devices.js';

const gather = (PathOnHost: string) =>
  buildDevices({
    Privileged: false,
    Devices: [{ PathOnHost, PathInContainer: '/dev/given', CgroupPermissions: 'r' }],
    DeviceCgroupRules: null,
  });

test('a directory stands for the devices below it, and one with all files of a host for none', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'devices-'));
  // So many files as below are made and removed much faster in memory.
  execFileSync('mount', ['-t', 'tmpfs', 'devices', dir]);
  t.after(() => {
    execFileSync('umount', [dir]);
    rmdirSync(dir);
  });
  mkdirSync(join(dir, 'below'));
  writeFileSync(join(dir, 'file'), '');
  // A link leads somewhere else.
  symlinkSync('/dev/zero', join(dir, 'link'));
  for (const [name, minor] of [
    ['a', 3],
    ['below/b', 5],
  ])
    execFileSync('mknod', [join(dir, String(name)), 'c', '1', String(minor)]);
  const { nodes, rules } = await gather(dir);
  assert.deepEqual(
    nodes.map(({ path, minor }) => [path, minor]),
    [
      ['/dev/given/a', 3],
      ['/dev/given/below/b', 5],
    ],
  );
  assert.deepEqual(rules.at(-1), { allow: true, type: 'c', major: 1, minor: 5, access: 'r' });
  execFileSync('sh', ['-c', 'seq 50000 | xargs mkdir'], { cwd: join(dir, 'below') });
  await assert.rejects(gather(dir), {
    kind: 'invalid',
    message: /^error gathering device information while adding custom device "\/\S+": more than 50000 files are there$/,
  });
});
