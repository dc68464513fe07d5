/** The Debian package under systemd: `vm-guest.sh` has installed it. What needs no systemd is in test/daemon. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { docker, importBox, outcomeOf, output, property, systemctl, waitLong } from '../support/machine.js';

/** UPGRADES_COUNT of `npm run test:vm` is that of the machine, too. */
const UPGRADES = Number(process.env['UPGRADES_COUNT'] ?? 1);

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

/** Asks the API and a published port until a file is there, in the background; what it says goes to another file. */
const PROBE = `( while [ ! -e /tmp/upgraded ]; do
  echo question
  curl -s -o /dev/null --max-time 300 --unix-socket /run/engine.sock http://engine/_ping || echo api failed
  curl -s -o /dev/null --max-time 300 http://127.0.0.1:8081/ || echo port failed
done; echo end ) > /tmp/probed 2>&1 &`;

test('upgrades replace the daemon; containers go on, and no request fails', async (t) => {
  await docker('run', '-d', '--name', 'stays', '-p', '127.0.0.1:8081:80', 'box', 'httpd', '-f');
  const container = await docker('inspect', '-f', '{{.State.Pid}}', 'stays');
  await output('sh', '-c', PROBE);
  for (let round = 0; round < UPGRADES; round++) {
    const daemon = await property('engined.service', 'MainPID');
    await output('sh', '-c', 'dpkg --force-unsafe-io -i /srv/package/engined_1.0_*.deb');
    assert.notEqual(await property('engined.service', 'MainPID'), daemon);
  }
  await writeFile('/tmp/upgraded', '');
  const probed = await waitLong('the last answers', async () => {
    const text = await readFile('/tmp/probed', 'utf8');
    return text.endsWith('end\n') && text;
  });
  const lines = probed.split('\n').slice(0, -2);
  t.diagnostic(`${lines.length} times two requests over ${UPGRADES} upgrades`);
  assert.deepEqual(new Set(lines), new Set(['question']));
  assert.equal(await docker('inspect', '-f', '{{.State.Pid}} {{.State.Running}}', 'stays'), `${container} true`);
  assert.equal(await docker('exec', 'stays', 'echo', 'still here'), 'still here');
});

test('the unit takes nothing from containers that their own profile gives them', async () => {
  const { stdout } = await outcomeOf('systemd-analyze', 'security', '--no-pager', 'engined.service');
  console.log(stdout.trim().split('\n').at(-1));
  // A filter of system calls in the unit would be that of every container, too.
  assert.equal(await docker('run', '--rm', 'box', 'linux32', 'uname', '-m'), 'i686');
});
