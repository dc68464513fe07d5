/** The daemon of an ordinary user under a systemd of the user, with the control groups that this has delegated. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { before, test, type TestContext } from 'node:test';
import { importBox, type Outcome, outcomeOf, output, waitLong } from '../support/machine.js';

const NAME = 'ordinary';
const PROGRAMS = ['rootlesskit', 'slirp4netns', 'newuidmap', 'docker-registry', 'git'];
let isPossible = false;
let runtimeDir = '';

/** Runs a program as the user, in the user's session. */
function asUser(...command: readonly string[]): Promise<Outcome> {
  const env = [`XDG_RUNTIME_DIR=${runtimeDir}`, `DOCKER_HOST=unix://${runtimeDir}/engine.sock`, `HOME=/home/${NAME}`];
  return outcomeOf('runuser', '-u', NAME, '--', 'env', '-C', `/home/${NAME}`, ...env, ...command);
}

async function ok(...command: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await asUser(...command);
  assert.equal(status, 0, `${command.join(' ')}: ${stderr}${stdout}`);
  return stdout.trim();
}

before(async () => {
  const look = `for name in ${PROGRAMS.join(' ')}; do command -v $name || exit 1; done`;
  isPossible = (await outcomeOf('sh', '-c', look)).status === 0;
  if (!isPossible) return;
  await output('useradd', '--create-home', NAME);
  await output('modprobe', 'overlay');
  await output('modprobe', 'tun');
  await output('loginctl', 'enable-linger', NAME);
  runtimeDir = `/run/user/${await output('id', '-u', NAME)}`;
  const bus = `${runtimeDir}/bus`;
  await waitLong('the bus of the user', async () => (await outcomeOf('test', '-S', bus)).status === 0);
  await ok('sh', '-c', `mkdir -p .config/engine && echo '{"live-restore":true}' > .config/engine/daemon.json`);
});

function skip(t: TestContext): boolean {
  if (!isPossible) t.skip('the machine was made before it had these programs: remove node_modules/.cache/test-machine');
  return !isPossible;
}

const reply = async (): Promise<string> =>
  (await outcomeOf('curl', '-so', '/dev/null', '-w', '%{http_code}', 'http://127.0.0.1:8080/')).stdout;
const namespacesEnd = (): Promise<boolean> =>
  waitLong('the namespaces to end', async () => (await outcomeOf('pgrep', 'rootlesskit')).status === 1);

test('the unit of the user starts it, with groups of the user', async (t) => {
  if (skip(t)) return;
  await ok('systemctl', '--user', 'enable', '--now', 'engined');
  const facts = await ok('docker', 'info', '--format', '{{.CgroupVersion}} {{.CgroupDriver}} {{.SecurityOptions}}');
  assert.match(facts, /^2 systemd .*name=rootless/);
  assert.equal(await ok('systemctl', '--user', 'is-active', 'engined'), 'active');
  await importBox(`unix://${runtimeDir}/engine.sock`);
});

test('limits of controllers that are delegated hold, others are refused', async (t) => {
  if (skip(t)) return;
  const limits = ['--memory', '64m', '--pids-limit', '20', '--cpus', '0.5'];
  const id = await ok('docker', 'run', '-d', '--name', 'limited', ...limits, '-p', '8080:80', 'box', 'httpd', '-f');
  const pid = await ok('docker', 'inspect', '-f', '{{.State.Pid}}', 'limited');
  const group = (await readFile(`/proc/${pid}/cgroup`, 'utf8')).trim().replace(/^0::/, '');
  assert.ok(group.endsWith(`engine-${id}.scope`) && group.includes('user@'), group);
  const read = async (file: string): Promise<string> =>
    (await readFile(`/sys/fs/cgroup${group}/${file}`, 'utf8')).trim();
  assert.deepEqual(
    [await read('memory.max'), await read('pids.max'), await read('cpu.max')],
    [String(64 << 20), '20', '50000 100000'],
  );
  assert.match(await ok('docker', 'top', 'limited'), /httpd/);
  assert.match(await ok('docker', 'stats', '--no-stream', '--format', '{{.MemUsage}}', 'limited'), /64MiB$/);
  await ok('docker', 'pause', 'limited');
  await ok('docker', 'unpause', 'limited');
  const { stderr } = await asUser('docker', 'run', '--rm', '--cpuset-cpus', '0', 'box', 'true');
  assert.match(stderr, /CpusetCpus cannot be kept by a rootless daemon: the controller cpuset .* is not delegated/);
});

test('a container goes on while the unit is restarted, and an image is made of it', async (t) => {
  if (skip(t)) return;
  assert.equal(await reply(), '404');
  await ok('systemctl', '--user', 'restart', 'engined');
  assert.equal(await reply(), '404');
  await ok('docker', 'exec', 'limited', 'sh', '-c', 'echo of the container > /made');
  await ok('docker', 'commit', 'limited', 'made:1');
  await ok('docker', 'run', '--name', 'tells', 'made:1', 'cat', '/made');
  assert.equal(await ok('docker', 'logs', 'tells'), 'of the container');
  await ok('docker', 'rm', '-f', 'limited', 'tells');
  await ok('systemctl', '--user', 'stop', 'engined');
  await namespacesEnd();
});

test('the quickstart shows what it does, without any right of root', async (t) => {
  if (skip(t)) return;
  // The disk with the project has no npm.
  const text = await ok('node', '/srv/scripts/quickstart.mjs', '--rootless', '--once', '--built');
  for (let number = 1; number <= 9; number++) assert.match(text, new RegExp(`^${number}\\. `, 'm'));
  assert.match(text, /-> hello world\n/);
  assert.match(text, /-> \{"Id":"sha256:[0-9a-f]{64}"\}\n\ncleaning up$/);
  await namespacesEnd();
});
