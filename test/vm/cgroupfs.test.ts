/** Control groups of version 2 that the runtime makes without systemd, though systemd runs the service. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { after, before, test } from 'node:test';
import { docker, importBox, outcomeOf, property, systemctl } from '../support/machine.js';
import { waitFor } from '../support/wait.js';

const CONFIG = '/etc/engine/daemon.json';

before(async () => {
  await mkdir('/etc/engine', { recursive: true });
  await writeFile(CONFIG, JSON.stringify({ 'exec-opts': ['native.cgroupdriver=cgroupfs'] }));
  await outcomeOf('systemctl', 'reset-failed');
  await systemctl('enable', '--now', 'engined.socket');
  await systemctl('restart', 'engined.service');
  await importBox();
});

after(async () => {
  await systemctl('stop', 'engined.socket', 'engined.service');
  await writeFile(CONFIG, '{}');
});

const groupOf = async (name: string): Promise<string> => {
  const pid = await docker('inspect', '-f', '{{.State.Pid}}', name);
  return (await readFile(`/proc/${pid}/cgroup`, 'utf8')).trim().replace(/^0::/, '');
};

test('the engine tells that it does without systemd', async () => {
  assert.equal(await docker('info', '--format', '{{.CgroupVersion}} {{.CgroupDriver}}'), '2 cgroupfs');
});

test('limits hold in a group of the usual place, below a path, and beside the service', async () => {
  const service = await property('engined.service', 'ControlGroup');
  const places = [
    [[], /^\/engine\//],
    [['--cgroup-parent', '/elsewhere/deep'], /^\/elsewhere\/deep\//],
    [['--cgroup-parent', 'inner'], new RegExp(`^${dirname(service)}/inner/`)],
  ] as const;
  for (const [options, place] of places) {
    const name = `at${places.findIndex(([other]) => other === options)}`;
    const id = await docker('run', '-d', '--name', name, '--memory', '64m', ...options, 'box', 'sleep', '100000');
    const group = await groupOf(name);
    assert.match(group, place);
    assert.ok(group.endsWith(id), group);
    assert.equal((await readFile(`/sys/fs/cgroup${group}/memory.max`, 'utf8')).trim(), String(64 << 20));
    // A group that has processes beside groups turns "threaded", and then nothing can be started in it.
    assert.equal((await readFile(`/sys/fs/cgroup${service}/cgroup.type`, 'utf8')).trim(), 'domain');
    assert.equal(await docker('exec', name, 'echo', 'here'), 'here');
    await docker('rm', '-f', name);
    // The runtime removes it, and may still do so behind the reply.
    await waitFor('the group to be gone', () => !existsSync(`/sys/fs/cgroup${group}`));
  }
});
