/** The Debian package under systemd: `vm-guest.sh` has installed it. What needs no systemd is in test/daemon. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { docker, importBox, outcomeOf, output, property, systemctl } from '../support/machine.js';

before(async () => {
  await writeFile('/etc/engine/daemon.json', '{"live-restore": true}');
  await outcomeOf('systemctl', 'reset-failed');
  await systemctl('start', 'engined.socket');
  await importBox();
});

after(async () => {
  await docker('rm', '-f', 'stays');
  await systemctl('stop', 'engined.socket', 'engined.service');
});

test('the installation has started the service, now and at each boot', async () => {
  const installed = await readFile('/srv/package/installed', 'utf8');
  const unit = (name: string): string => `Id=${name}\nActiveState=active\nUnitFileState=enabled\n`;
  assert.equal(installed, `${unit('engined.socket')}\n${unit('engined.service')}`);
  assert.equal(await output('stat', '-c', '%G %a', '/run/engine.sock'), 'engine 660');
});

test('engined check tells what this machine gives', async () => {
  const { status, stdout } = await outcomeOf('engined', 'check', '--json');
  const { verdict, rows } = JSON.parse(stdout) as {
    verdict: string;
    rows: { name: string; verdict: string; text: string }[];
  };
  const told = new Map(rows.map((row) => [row.name, `${row.verdict}: ${row.text}`]));
  assert.equal(told.get('kernel'), `ok: Linux ${await output('uname', '-r')}`);
  assert.match(told.get('security modules') ?? '', /^ok: .*apparmor/);
  assert.match(told.get('AppArmor') ?? '', /^ok: /);
  assert.match(told.get('cgroup version') ?? '', /^ok: 2/);
  assert.equal(status, { ok: 0, note: 0, warning: 2, failure: 1 }[verdict], stdout);
});

test('an upgrade replaces the daemon, and containers go on', async () => {
  await docker('run', '-d', '--name', 'stays', 'box', 'sleep', '100000');
  const container = await docker('inspect', '-f', '{{.State.Pid}}', 'stays');
  const daemon = await property('engined.service', 'MainPID');
  await output('sh', '-c', 'dpkg --force-unsafe-io -i /srv/package/engined_1.0_*.deb');
  assert.notEqual(await property('engined.service', 'MainPID'), daemon);
  assert.equal(await docker('inspect', '-f', '{{.State.Pid}} {{.State.Running}}', 'stays'), `${container} true`);
  assert.equal(await docker('exec', 'stays', 'echo', 'still here'), 'still here');
});
