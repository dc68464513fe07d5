/**
 * SELinux where the kernel enforces a policy: who is confined, what a container may not touch, and what relabelling
 * lets it. Only the machine of `npm run test:vm -- selinux` has a policy.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { docker, importBox, outcomeOf, output, systemctl } from '../support/machine.js';

const CONFIG = '/etc/engine/daemon.json';
const OWN = '/srv-test/own';
const LABEL = /^system_u:system_r:container_t:s0:c\d+,c\d+$/;
const skip = existsSync('/sys/fs/selinux/enforce') ? false : 'no SELinux: npm run test:vm -- selinux';

const run = (...args: readonly string[]): Promise<string> => docker('run', '--rm', ...args);
const inspect = (name: string, format: string): Promise<string> => docker('inspect', '-f', format, name);
const labelOf = (path: string): Promise<string> => output('stat', '-c', '%C', path);
const refused = async (...args: readonly string[]): Promise<void> => {
  const { status, stderr } = await outcomeOf('docker', 'run', '--rm', ...args);
  assert.notEqual(status, 0);
  assert.match(stderr, /Permission denied/);
};

describe('containers under an enforced policy', { skip }, () => {
  before(async () => {
    await output('semodule', '-i', '/usr/share/doc/engined/examples/engined.cil');
    await output('restorecon', '-RF', '/usr/lib/engined', '/var/lib/engine', '/run/engine', '/run/engine.sock');
    await writeFile(CONFIG, JSON.stringify({ 'selinux-enabled': true, 'live-restore': true }));
    await output('setenforce', '1');
    await systemctl('enable', '--now', 'engined.socket');
    await systemctl('restart', 'engined.service');
    await importBox();
    await mkdir(OWN, { recursive: true });
    await writeFile(`${OWN}/file`, 'of the host\n');
  });

  after(() => systemctl('stop', 'engined.socket', 'engined.service'));

  test('processes and files have the labels that inspect shows, and no two containers share them', async () => {
    assert.equal(await output('getenforce'), 'Enforcing');
    assert.match(await docker('info', '--format', '{{.SecurityOptions}}'), /name=selinux/);
    const labels = [];
    for (const name of ['one', 'two']) {
      await docker('run', '-d', '--name', name, 'box', 'sleep', '100000');
      const label = await inspect(name, '{{.ProcessLabel}}');
      assert.match(label, LABEL);
      assert.equal(await output('cat', `/proc/${await inspect(name, '{{.State.Pid}}')}/attr/current`), `${label}\0`);
      assert.equal(await docker('exec', name, 'cat', '/proc/self/attr/current'), `${label}\0`);
      assert.equal(
        await inspect(name, '{{.MountLabel}}'),
        label.replace('system_r:container_t', 'object_r:container_file_t'),
      );
      labels.push(label);
    }
    assert.notEqual(labels[0], labels[1]);
  });

  test('a file of the host is out of reach, until it is relabelled', async () => {
    const read = ['-v', `${OWN}:/own`, 'box', 'cat', '/own/file'];
    await refused(...read);
    assert.equal(await run('--security-opt', 'label=disable', ...read), 'of the host');
    await run('-v', `${OWN}:/own:z`, 'box', 'true');
    assert.match(await labelOf(`${OWN}/file`), /:container_file_t:s0$/);
    assert.equal(await run(...read), 'of the host');
    const owner = await docker('run', '-d', '--name', 'owner', '-v', `${OWN}:/own:Z`, 'box', 'sleep', '100000');
    assert.equal(await docker('exec', owner, 'cat', '/own/file'), 'of the host');
    await refused(...read);
  });

  test('what the engine itself gives a container is for this container', async () => {
    const write = 'for d in / /dev/shm /tmp /data /etc/hosts; do [ -d $d ] && d=$d/new; echo x >> $d || exit 1; done';
    await run('--tmpfs', '/tmp', '-v', 'kept:/data', 'box', 'sh', '-c', write);
    assert.equal(await run('-v', 'kept:/data', 'box', 'cat', '/data/new'), 'x');
    await docker('cp', CONFIG, 'one:/copied');
    assert.match(await docker('exec', 'one', 'cat', '/copied'), /selinux-enabled/);
    const pid = await inspect('two', '{{.State.Pid}}');
    await refused(
      '--pid',
      'host',
      '--security-opt',
      'label=level:s0:c1022,c1023',
      'box',
      'cat',
      `/proc/${pid}/environ`,
    );
  });

  test('labels are those that were asked for', async () => {
    const own = ['cat', '/proc/self/attr/current'];
    const level = ['--security-opt', 'label=level:s0:c7,c9'];
    assert.equal(await run(...level, 'box', ...own), 'system_u:system_r:container_t:s0:c7,c9\0');
    assert.equal(await run('--pid', 'container:one', 'box', ...own), `${await inspect('one', '{{.ProcessLabel}}')}\0`);
    assert.match(await run('--privileged', 'box', ...own), /^system_u:system_r:spc_t:/);
    const wrong = await outcomeOf('docker', 'create', '--security-opt', 'label=type:no_such_t', 'box', 'true');
    assert.match(wrong.stderr, /invalid SELinux label: the policy does not know/);
    const places = await outcomeOf('docker', 'run', '--rm', '-v', '/etc:/x:z', 'box', 'true');
    assert.match(places.stderr, /SELinux relabeling of \/etc is not allowed/);
  });

  test('containers go on over a restart of the daemon, with their labels', async () => {
    const label = await inspect('one', '{{.ProcessLabel}}');
    const pid = await inspect('one', '{{.State.Pid}}');
    await systemctl('restart', 'engined.service');
    assert.equal(await inspect('one', '{{.State.Pid}}'), pid);
    assert.equal(await docker('exec', 'one', 'cat', '/proc/self/attr/current'), `${label}\0`);
    await docker('restart', 'one');
    assert.equal(await docker('exec', 'one', 'cat', '/proc/self/attr/current'), `${label}\0`);
    await docker('rm', '-f', 'one', 'two', 'owner');
    await docker('volume', 'rm', 'kept');
  });
});
