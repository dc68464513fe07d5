/** The Debian package under systemd: `vm-guest.sh` has installed it. What needs no systemd is in test/daemon. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { callJson } from '../support/http.js';
import { docker, importBox, IS_NATIVE, outcomeOf, output, property, systemctl, waitLong } from '../support/machine.js';
import { startOutsideLoad } from '../support/outside-load.js';
import { probe, type SteadyLoad } from '../support/steady-load.js';
import { COUNTER, startUpgradeLoad, WEB } from '../support/upgrade-load.js';

/** Variables of `npm run test:vm` are those of the machine, too: so many upgrades, ports and requests a second. */
const UPGRADES = Number(process.env['UPGRADES_COUNT'] ?? 1);
const PORTS = Number(process.env['UPGRADE_PORTS'] ?? 1);
const REQUESTS = Number(process.env['UPGRADE_REQUESTS'] ?? 2);
const FIRST_PORT = 8081;
const SOCKET = '/run/engine.sock';
/** The machine's address for others, and who burdens it from outside on demand; an emulated one has no link. */
const { ADDRESS, OUTSIDE } = process.env;
const API_PORT = 2375;
const PROBE_MS = PORTS > 1 ? 10 : 1000;
/** An emulated machine does not keep up with many clients: the report says how many there were in a second. */
const INSIDE =
  OUTSIDE === undefined
    ? { probeMs: PROBE_MS, requestsPerSecond: REQUESTS, mostOpen: 10 }
    : { probeMs: 1000, requestsPerSecond: 2 };
/**
 * The server of the ports where there are many probes: a process for each of them, as of httpd, would take most of the
 * machine's processor, and more than a few could not wait for it.
 */
const ANSWER = "c => c.on('error', () => {}).once('data', () => c.end('HTTP/1.0 200 OK\\r\\n\\r\\nserved'))";
const NODE = ['-v', '/usr/bin/node:/bin/node:ro', '-v', '/usr/lib:/lib:ro', '-v', '/usr/lib64:/lib64:ro'];
const SERVER =
  OUTSIDE === undefined
    ? ['box', 'sh', '-c', WEB]
    : [...NODE, 'box', 'node', '-e', `require('net').createServer(${ANSWER}).listen(80)`];

before(async () => {
  const open = ADDRESS === undefined ? {} : { hosts: [`tcp://${ADDRESS}:${API_PORT}`], tls: false };
  await writeFile('/etc/engine/daemon.json', JSON.stringify({ 'live-restore': true, ...open }));
  await outcomeOf('systemctl', 'reset-failed');
  await systemctl('start', 'engined.socket');
  await systemctl('restart', 'engined.service');
  await importBox();
});

after(async () => {
  await docker('rm', '-f', 'web', 'counter');
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

test('upgrades replace the daemon; containers go on, and nothing is missed', async (t) => {
  const ports = Array.from({ length: PORTS }, (_, at) => FIRST_PORT + at);
  const published = ports.flatMap((port) => ['-p', `0.0.0.0:${port}:80`]);
  await docker('run', '-d', '--name', 'web', ...published, ...SERVER);
  await docker('run', '-d', '-t', '--name', 'counter', 'box', 'sh', '-c', COUNTER);
  const states = (): Promise<string> =>
    docker('inspect', '-f', '{{.State.Pid}} {{.State.StartedAt}} {{.RestartCount}}', 'web', 'counter');
  const before = await states();
  await waitLong('the server in the container', () =>
    Promise.all(ports.map((port) => probe('127.0.0.1', port, 'served'))).then(
      () => true,
      () => false,
    ),
  );
  const load = startUpgradeLoad({
    socketPath: SOCKET,
    ports,
    ...INSIDE,
    volumeMs: 2000,
    createVolume: (Name) => callJson(SOCKET, 'POST', '/volumes/create', { json: { Name } }),
    more: await outsideLoad(ports),
  });
  t.after(() => load.abandon());
  for (let round = 0; round < UPGRADES; round++) {
    const daemon = await property('engined.service', 'MainPID');
    const start = performance.now();
    await output('sh', '-c', 'dpkg --force-unsafe-io -i /srv/package/engined_1.0_*.deb');
    assert.notEqual(await property('engined.service', 'MainPID'), daemon);
    const took = Math.round((performance.now() - start) / 1000);
    t.diagnostic(`upgrade ${round + 1} took ${took} s, and no daemon served for ${await secondsAway()} of them`);
  }
  assert.equal(await states(), before);
  await load.end({
    stop: () => docker('exec', 'counter', 'touch', '/stop'),
    logs: () => docker('logs', 'counter'),
  });
  t.diagnostic(`${UPGRADES} upgrades with ${PORTS} published ports; no container was restarted`);
  assert.equal(await docker('exec', 'web', 'echo', 'still here'), 'still here');
});

/** The load that comes over the machine's link, if it has one; then there is little of it from inside. */
function outsideLoad(ports: readonly number[]): Promise<Readonly<Record<string, SteadyLoad>>> {
  if (OUTSIDE === undefined || ADDRESS === undefined) return Promise.resolve({});
  const rates = { requestsPerSecond: REQUESTS, probeMs: PROBE_MS };
  return startOutsideLoad(OUTSIDE, { address: ADDRESS, apiPort: API_PORT, ports, ...rates });
}

/** The time from the last stop of the daemon to its last start, as systemd has seen them. */
async function secondsAway(): Promise<number> {
  const at = async (state: string): Promise<number> =>
    Number(await property('engined.service', `${state}TimestampMonotonic`));
  return Math.round(((await at('ActiveEnter')) - (await at('ActiveExit'))) / 1e6);
}

test('the unit takes nothing from containers that their own profile gives them', async (t) => {
  const { stdout } = await outcomeOf('systemd-analyze', 'security', '--no-pager', 'engined.service');
  console.log(stdout.trim().split('\n').at(-1));
  if (IS_NATIVE) {
    t.skip('this kernel has one machine for every personality');
    return;
  }
  // A filter of system calls in the unit would be that of every container, too.
  assert.equal(await docker('run', '--rm', 'box', 'linux32', 'uname', '-m'), 'i686');
});
