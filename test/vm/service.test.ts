/** The service as an operator installs it, under systemd on pure control groups of version 2. */
import assert from 'node:assert/strict';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { before, beforeEach, test } from 'node:test';
import { docker, importBox, outcomeOf, output, property, systemctl, waitLong } from '../support/machine.js';

const CONFIG = '/etc/engine/daemon.json';
const configure = async (config: object): Promise<void> => {
  await mkdir('/etc/engine', { recursive: true });
  await writeFile(CONFIG, JSON.stringify(config));
};
const inspect = async (name: string, format: string): Promise<string> => docker('inspect', '-f', format, name);
const mainPid = async (): Promise<string> => property('engined.service', 'MainPID');

interface Entry {
  readonly MESSAGE?: string;
  readonly PRIORITY?: string;
  readonly SYSLOG_IDENTIFIER?: string;
  readonly [field: string]: unknown;
}

async function journal(...filter: readonly string[]): Promise<Entry[]> {
  const text = await output('journalctl', '-o', 'json', '--no-pager', ...filter);
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Entry]));
}

// The tests start the service more often than systemd lets one that fails.
beforeEach(() => outcomeOf('systemctl', 'reset-failed'));

before(async () => {
  await systemctl('stop', 'engined.socket', 'engined.service');
  await configure({ 'live-restore': true });
  assert.equal((await output('stat', '-fc', '%T', '/sys/fs/cgroup')).trim(), 'cgroup2fs');
});

test('the units are valid, with the part for this systemd', async () => {
  for (const name of ['engined.socket', 'engined.service']) {
    const { stdout, stderr, status } = await outcomeOf('systemd-analyze', 'verify', `/usr/lib/systemd/system/${name}`);
    assert.deepEqual([stdout, stderr, status], ['', '', 0]);
  }
  assert.equal(await property('engined.service', 'Type'), 'notify-reload');
});

test('the first request to the socket starts the service', async () => {
  await systemctl('enable', '--now', 'engined.socket');
  assert.equal(await property('engined.service', 'ActiveState'), 'inactive');
  assert.equal(((await stat('/run/engine.sock')).mode & 0o777).toString(8), '660');
  assert.match(await docker('version', '--format', '{{.Server.APIVersion}}'), /^1\.\d+$/);
  assert.equal(await property('engined.service', 'ActiveState'), 'active');
  await importBox();
});

test('the engine tells what the machine is', async () => {
  const facts = await docker('info', '--format', '{{.CgroupVersion}} {{.CgroupDriver}} {{.SecurityOptions}}');
  assert.match(facts, /^2 systemd .*name=cgroupns/);
});

test('a container lives in a scope of systemd, and its limits hold', async () => {
  const limits = ['--memory', '64m', '--pids-limit', '20', '--cpus', '0.5'];
  const id = await docker('run', '-d', '--name', 'limited', ...limits, 'box', 'sleep', '100000');
  const scope = await property(`engine-${id}.scope`, 'ControlGroup');
  assert.equal(scope, await groupOf(await inspect('limited', '{{.State.Pid}}')));
  const read = async (file: string): Promise<string> =>
    (await readFile(`/sys/fs/cgroup${scope}/${file}`, 'utf8')).trim();
  assert.deepEqual(
    [await read('memory.max'), await read('pids.max'), await read('cpu.max')],
    [String(64 << 20), '20', '50000 100000'],
  );
  await docker('update', '--memory', '96m', '--memory-swap', '96m', 'limited');
  assert.equal(await read('memory.max'), String(96 << 20));
  const forks = await outcomeOf('docker', 'exec', 'limited', 'sh', '-c', 'for i in $(seq 30); do sleep 1000 & done');
  assert.match(forks.stderr, /can't fork|Resource temporarily unavailable/);
  assert.match(
    await docker('stats', '--no-stream', '--format', '{{.MemUsage}} {{.PIDs}}', 'limited'),
    /96MiB (19|20)$/,
  );
  await docker('rm', '-f', 'limited');
});

const groupOf = async (pid: string): Promise<string> =>
  (await readFile(`/proc/${pid}/cgroup`, 'utf8')).trim().replace(/^0::/, '');

test('a container that takes too much memory is ended, and that is said', async () => {
  const script = 'x=$(cat /dev/zero | head -c 200m | tr "\\0" x); echo ${#x}';
  const { status } = await outcomeOf('docker', 'run', '--name', 'greedy', '--memory', '32m', 'box', 'sh', '-c', script);
  assert.equal(status, 137);
  assert.equal(await inspect('greedy', '{{.State.OOMKilled}} {{.State.ExitCode}}'), 'true 137');
  await docker('rm', 'greedy');
});

test('a privileged container has control groups of its own, as every other', async () => {
  for (const options of [[], ['--privileged']]) {
    assert.equal(await docker('run', '--rm', ...options, 'box', 'cat', '/proc/self/cgroup'), '0::/');
  }
  assert.notEqual(await docker('run', '--rm', '--cgroupns', 'host', 'box', 'cat', '/proc/self/cgroup'), '0::/');
});

test('a reload is over when systemctl returns, and one that is wrong leaves the service as it is', async () => {
  const pid = await mainPid();
  await configure({ 'live-restore': true, labels: ['tried=1'] });
  await systemctl('reload', 'engined.service');
  assert.match(await docker('info', '--format', '{{.Labels}}'), /tried=1/);
  await configure({ 'live-restore': 'perhaps' });
  await systemctl('reload', 'engined.service');
  assert.equal(await property('engined.service', 'ActiveState'), 'active');
  assert.equal(await mainPid(), pid);
  await configure({ 'live-restore': true });
  await systemctl('reload', 'engined.service');
});

test('lines of the journal have the name of the service and their priority', async () => {
  const entries = (await journal('-u', 'engined.service')).filter(({ MESSAGE = '' }) => /level=/.test(MESSAGE));
  assert.ok(entries.length > 0);
  const expected = new Map([
    ['info', '6'],
    ['warning', '4'],
    ['warn', '4'],
    ['error', '3'],
  ]);
  for (const { MESSAGE = '', PRIORITY, SYSLOG_IDENTIFIER } of entries) {
    assert.equal(SYSLOG_IDENTIFIER, 'engined', MESSAGE);
    assert.equal(PRIORITY, expected.get(/level=(\w+)/.exec(MESSAGE)?.[1] ?? ''), MESSAGE);
  }
  assert.ok(entries.some(({ PRIORITY, MESSAGE = '' }) => PRIORITY === '3' && /live-restore/.test(MESSAGE)));
});

test('the log driver journald writes what the journal finds by the name of the container', async () => {
  await docker('run', '--name', 'talker', '--log-driver', 'journald', 'box', 'sh', '-c', 'echo one; echo two >&2');
  const entries = await waitLong('both lines', async () => {
    const found = await journal('CONTAINER_NAME=talker');
    return found.length === 2 && found;
  });
  // Two pipes have no order between them, but what was read first is counted first.
  assert.deepEqual(
    new Map(entries.map(({ MESSAGE, PRIORITY }) => [MESSAGE, PRIORITY])),
    new Map([
      ['one', '6'],
      ['two', '3'],
    ]),
  );
  assert.deepEqual(
    entries.map((entry) => entry['CONTAINER_LOG_ORDINAL']),
    ['1', '2'],
  );
  assert.equal(await docker('logs', 'talker'), 'one');
  await docker('rm', 'talker');
});

/** Asks the API and a published port until a file is there; each question and each failure is a line. */
const PROBE = `while [ ! -e /tmp/asked ]; do
  echo question
  curl -s -o /dev/null --max-time 300 --unix-socket /run/engine.sock http://engine/_ping || echo api failed
  curl -s -o /dev/null --max-time 300 http://127.0.0.1:8080/ || echo port failed
done`;

test('a restart of the service leaves containers and their supervisor alone, and no request fails', async () => {
  await docker('run', '-d', '--name', 'stays', '-p', '127.0.0.1:8080:80', 'box', 'httpd', '-f');
  const before_ = [await inspect('stays', '{{.State.Pid}}'), await supervisorPid()];
  const pid = await mainPid();
  assert.notEqual(await property('engined.service', 'NFileDescriptorStore'), '0', 'systemd keeps the port');
  const probe = output('sh', '-c', PROBE);
  await systemctl('restart', 'engined.service');
  assert.notEqual(await mainPid(), pid);
  await writeFile('/tmp/asked', '');
  assert.deepEqual(new Set((await probe).split('\n')), new Set(['question']));
  assert.deepEqual([await inspect('stays', '{{.State.Pid}}'), await supervisorPid()], before_);
  assert.equal(await docker('exec', 'stays', 'echo', 'still here'), 'still here');
});

const supervisorPid = async (): Promise<string> => output('pgrep', '-o', '-x', 'containerd');

test('a container that ends while the service is stopped has its true exit code', async () => {
  const script = 'while [ ! -e /tmp/end ]; do sleep 1; done; exit 7';
  await docker('run', '-d', '--name', 'ends', 'box', 'sh', '-c', script);
  const pid = await inspect('ends', '{{.State.Pid}}');
  await systemctl('stop', 'engined.socket', 'engined.service');
  await writeFile(`/proc/${pid}/root/tmp/end`, '').catch(async () => {
    await mkdir(`/proc/${pid}/root/tmp`, { recursive: true });
    await writeFile(`/proc/${pid}/root/tmp/end`, '');
  });
  await waitLong('the process to end', async () => (await outcomeOf('kill', '-0', pid)).status !== 0);
  await systemctl('start', 'engined.socket');
  assert.equal(await inspect('ends', '{{.State.Status}} {{.State.ExitCode}}'), 'exited 7');
  assert.equal(await inspect('stays', '{{.State.Status}}'), 'running');
  await docker('rm', 'ends');
});

test('a container that always restarts is there again when the service has said that it is ready', async () => {
  await docker('run', '-d', '--name', 'always', '--restart', 'always', 'box', 'sleep', '100000');
  const pid = await inspect('always', '{{.State.Pid}}');
  await systemctl('stop', 'engined.socket', 'engined.service');
  await output('kill', '-9', pid);
  await waitLong('the process to end', async () => (await outcomeOf('kill', '-0', pid)).status !== 0);
  await systemctl('start', 'engined.socket', 'engined.service');
  await waitLong('the container to run', async () => (await inspect('always', '{{.State.Status}}')) === 'running');
  await docker('rm', '-f', 'always');
  const units = await systemctl('list-units', '--no-legend', '--plain', '*.scope');
  assert.equal(units.split('\n').filter((line) => line.startsWith('engine-')).length, 1, units);
});

test('the watchdog of systemd notices a daemon that hangs, and containers go on', async () => {
  const dropIn = '/etc/systemd/system/engined.service.d/watchdog.conf';
  await writeFile(dropIn, '[Service]\nWatchdogSec=30\n');
  await systemctl('daemon-reload');
  await systemctl('restart', 'engined.service');
  const [pid, container] = [await mainPid(), await inspect('stays', '{{.State.Pid}}')];
  await output('kill', '-STOP', pid);
  await waitLong('another daemon', async () => !['0', pid].includes(await mainPid()));
  assert.equal(await inspect('stays', '{{.State.Pid}}'), container);
  assert.equal(await property('engined.service', 'NRestarts'), '1');
});

test('without live-restore a stop of the service ends its containers, and leaves no process and no scope', async () => {
  await configure({});
  await systemctl('reload', 'engined.service');
  await systemctl('stop', 'engined.socket', 'engined.service');
  assert.equal((await outcomeOf('pgrep', '-x', 'containerd')).stdout, '');
  assert.equal((await outcomeOf('pgrep', '-f', 'containerd-shim')).stdout, '');
  assert.equal(await systemctl('list-units', '--no-legend', '--plain', 'engine-*.scope'), '');
  assert.equal(await property('engined.service', 'Result'), 'success');
  await systemctl('start', 'engined.socket');
  assert.equal(await inspect('stays', '{{.State.Status}}'), 'exited');
});
