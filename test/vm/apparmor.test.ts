/** The default AppArmor profile on a kernel that enforces it: what it refuses, whom it confines, and whom not. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { docker, importBox, outcomeOf, output, systemctl } from '../support/machine.js';

const LABEL = 'cat /proc/self/attr/current';
const run = (...args: readonly string[]): Promise<string> => docker('run', '--rm', ...args);
const fails = async (...args: readonly string[]): Promise<string> => {
  const { status, stderr } = await outcomeOf('docker', 'run', '--rm', ...args);
  assert.notEqual(status, 0);
  return stderr;
};
let dir: string;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'apparmor-'));
  await outcomeOf('systemctl', 'reset-failed');
  await systemctl('enable', '--now', 'engined.socket');
  await importBox();
});

after(async () => {
  await systemctl('stop', 'engined.socket', 'engined.service');
  await rm(dir, { recursive: true });
});

test('the engine says that AppArmor is in effect, and containers and their execs are confined', async () => {
  assert.match(await docker('info', '--format', '{{.SecurityOptions}}'), /name=apparmor/);
  await docker('run', '-d', '--name', 'confined', 'box', 'sleep', '100000');
  assert.equal(await docker('inspect', '-f', '{{.AppArmorProfile}}', 'confined'), 'engine-default');
  const pid = await docker('inspect', '-f', '{{.State.Pid}}', 'confined');
  assert.equal(await output('cat', `/proc/${pid}/attr/current`), 'engine-default (enforce)');
  for (const options of [[], ['--privileged']])
    assert.equal(await docker('exec', ...options, 'confined', 'sh', '-c', LABEL), 'engine-default (enforce)');
});

test('signals of clients reach a confined container, and its processes may signal each other', async () => {
  assert.equal(await docker('exec', 'confined', 'sh', '-c', 'sleep 1000 & kill $! && wait $!; echo $?'), '143');
  await docker('kill', 'confined');
  assert.equal(await docker('wait', 'confined'), '137');
  await docker('rm', 'confined');
});

test('the profile refuses a write to the kernel and a mount, which nothing else refuses', async () => {
  const loose = ['--cap-add', 'SYS_ADMIN', '--security-opt', 'seccomp=unconfined'];
  const write = [
    '--security-opt',
    'systempaths=unconfined',
    'box',
    'sh',
    '-c',
    'echo here > /proc/sys/kernel/domainname',
  ];
  for (const what of [write, ['box', 'sh', '-c', 'mkdir /mnt && mount -t tmpfs none /mnt']]) {
    assert.match(await fails(...loose, ...what), /Permission denied/);
    await run(...loose, '--security-opt', 'apparmor=unconfined', ...what);
  }
});

test('privileged containers are not confined', async () => {
  assert.equal(await run('--privileged', 'box', 'sh', '-c', LABEL), 'unconfined');
  assert.equal(
    await run('--privileged', '--security-opt', 'apparmor=engine-default', 'box', 'sh', '-c', LABEL),
    'unconfined',
  );
});

test('a profile of the operator is applied when it is loaded, and refused before', async () => {
  const option = ['--security-opt', 'apparmor=no-secrets'];
  assert.match(await fails(...option, 'box', 'true'), /apparmor failed to apply profile: "no-secrets" is not loaded/);
  await writeFile(join(dir, 'profile'), 'profile no-secrets flags=(attach_disconnected) { file, deny /secret r, }\n');
  await output('apparmor_parser', '-r', join(dir, 'profile'));
  const script = 'echo x > /secret; cat /secret';
  assert.match(await fails(...option, 'box', 'sh', '-c', script), /can't open '\/secret': Permission denied/);
  assert.equal(await run('box', 'sh', '-c', script), 'x');
});

test('steps of builds are confined', async () => {
  await writeFile(join(dir, 'Dockerfile'), `FROM box\nRUN ${LABEL} > /label\nCMD ["cat", "/label"]\n`);
  await output('env', 'DOCKER_BUILDKIT=0', 'docker', 'build', '-q', '-t', 'step', dir);
  assert.equal(await run('step'), 'engine-default (enforce)');
});

test('a profile that the kernel has lost is loaded again', async () => {
  await writeFile(join(dir, 'none'), 'profile engine-default {}\n');
  await output('apparmor_parser', '-R', join(dir, 'none'));
  assert.equal((await outcomeOf('grep', '-c', 'engine-default', '/sys/kernel/security/apparmor/profiles')).status, 1);
  assert.equal(await run('box', 'sh', '-c', LABEL), 'engine-default (enforce)');
});
