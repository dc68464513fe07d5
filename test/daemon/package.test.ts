/**
 * The Debian package, installed, upgraded, removed and purged, then the archive, as docs/install.md says it, in a root
 * that is this machine's with a layer above it, so that the machine itself stays as it is. What needs a running systemd
 * is in test/vm.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { dockerCli } from '../support/dockerd.js';
import { busyboxEntries, tarOf } from '../support/image-builder.js';
import { call, callJson } from '../support/http.js';
import { mountsBelow, processesOf, sweep } from '../support/leftovers.js';
import { waitFor } from '../support/wait.js';

/** This file is in dist/test/daemon. */
const SCRIPTS = fileURLToPath(new URL('../../../scripts/', import.meta.url));
const dir = mkdtempSync(join(tmpdir(), 'package-'));
const root = join(dir, 'root');
const upper = join(dir, 'upper');
const shared = join(dir, 'shared');
const socketPath = join(shared, 's');
let daemon: ChildProcess | undefined;

function run(program: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  assert.equal(status, 0, `${program} ${args.join(' ')}: ${stderr}${stdout}`);
  return stdout;
}
const inRoot = (...command: string[]): string => run('chroot', root, ...command);
/** Runs commands of the guide in a directory of the root. */
const walk = (directory: string, commands: string): string =>
  inRoot('env', 'DEBIAN_FRONTEND=noninteractive', 'sh', '-e', '-c', `cd '${directory}'; ${commands}`);
const dpkg = (...args: string[]): string => inRoot('dpkg', '--force-unsafe-io', ...args);

/** Returns the first commands that the guide has under a heading. */
function guide(heading: string): string {
  const text = readFileSync(join(SCRIPTS, '../docs/install.md'), 'utf8');
  const section = text.slice(text.indexOf(`\n## ${heading}\n`));
  const [, commands] = /^```sh\n([^]*?)^```/m.exec(section) ?? [];
  assert.ok(commands !== undefined, heading);
  return commands;
}

/** Makes a package and an archive. Returns the path of the package. */
function makePackage(version: string): string {
  const args = ['--built', '--with-node', '--compression', 'none', '--version', version, '--output', shared];
  return run(process.execPath, join(SCRIPTS, 'package.mjs'), ...args).split('\n')[0] ?? '';
}

/** Paths that are there beyond those of the machine, as `find` has them, without what dpkg and the daemon keep. */
function additions(): string[] {
  const kept = [
    'var/lib/dpkg',
    'var/lib/apt',
    'var/log',
    'var/cache',
    'var/lib/engine',
    'var/lib/systemd',
    'tmp',
    'etc/ld.so.cache',
  ];
  const skipped = kept.flatMap((path) => ['-o', '-path', `./${path}`, '-prune']);
  return run(
    'sh',
    '-c',
    'cd "$1" && shift && find . "$@"',
    'sh',
    upper,
    '-false',
    ...skipped,
    '-o',
    '!',
    '-type',
    'd',
    '-print',
  )
    .split('\n')
    .filter((path) => path !== '' && !/\/(group-?|gshadow-?|\.pwd\.lock)$/.test(path));
}

before(() => {
  for (const path of [root, upper, join(dir, 'work'), shared]) mkdirSync(path);
  run('mount', '-t', 'overlay', 'root', '-o', `lowerdir=/,upperdir=${upper},workdir=${join(dir, 'work')}`, root);
  mkdirSync(join(root, shared), { recursive: true });
  run('mount', '--bind', shared, join(root, shared));
  run('mount', '-t', 'proc', 'proc', join(root, 'proc'));
  run('mount', '--rbind', '/dev', join(root, 'dev'));
  // Nothing is downloaded here. To read what Debian has takes apt a second and a half, each time.
  run('mount', '-t', 'tmpfs', 'lists', join(root, 'var/lib/apt/lists'));
  // Where the machine has man-db, its index of all manual pages would be made anew each time that a package changes.
  const manuals = join(root, 'var/lib/man-db');
  if (existsSync(manuals)) run('mount', '-t', 'tmpfs', 'manuals', manuals);
});

after(async () => {
  await stop('SIGKILL');
  await waitFor('the processes to be gone', () => {
    sweep(dir);
    return processesOf(dir).length === 0;
  });
  for (const path of mountsBelow(dir).reverse()) run('umount', '-l', path);
  rmSync(dir, { recursive: true, force: true });
});

async function start(): Promise<void> {
  const flags = ['--data-root', join(shared, 'data'), '--exec-root', join(shared, 'exec'), '--bridge', 'none'];
  const mark = process.env['ENGINE_TEST_MARK'] ?? 'engine';
  const command = [
    'engined',
    '-H',
    `unix://${socketPath}`,
    ...flags,
    '--pidfile',
    join(shared, 'pid'),
    '--cgroup-parent',
    `/${mark}`,
  ];
  const child = spawn('unshare', ['--mount', 'sh', join(SCRIPTS, 'enter-root.sh'), root, shared, ...command], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  daemon = child;
  await waitFor('the daemon to answer', async () => {
    assert.equal(child.exitCode, null, 'the daemon has ended');
    return (await call(socketPath, 'GET', '/_ping').catch(() => undefined))?.status === 200;
  });
}

async function stop(signal: NodeJS.Signals): Promise<void> {
  const child = daemon;
  daemon = undefined;
  if (child === undefined || child.exitCode !== null) return;
  child.kill(signal);
  await once(child, 'exit');
}

const version = async (): Promise<string> => {
  const { Components } = await callJson<{ Components: { Name: string; Details: Record<string, string> }[] }>(
    socketPath,
    'GET',
    '/version',
  );
  return JSON.stringify(Components[0]?.Details);
};

test('it is installed, upgraded while a container runs, removed and purged', async () => {
  makePackage('1.0');
  const [install = '', ask = ''] = guide('Debian package').split('\n');
  walk(shared, install);
  assert.match(inRoot('engined', '--version'), /^engined version /);
  assert.match(inRoot('getent', 'group', 'engine'), /^engine:/);
  // It is for ordinary users, and says so.
  assert.match(inRoot('sh', '-c', 'engined-rootless --check 2>&1 || true'), /root runs engined itself/);
  assert.match(inRoot('cat', '/usr/lib/systemd/user/engined.service'), /^ExecStart=\/usr\/bin\/engined-rootless$/m);
  for (const unit of ['sockets.target.wants/engined.socket', 'multi-user.target.wants/engined.service'])
    assert.ok(additions().includes(`./etc/systemd/system/${unit}`), unit);
  assert.equal(inRoot('dpkg', '--verify', 'engined'), '');
  // Nothing is at the address, so the program says where it has looked.
  const dial = ['chroot', root, '/usr/libexec/engined/docker', '--host=unix:///none', 'system', 'dial-stdio'];
  const { stderr } = spawnSync(dial[0] ?? '', dial.slice(1), { encoding: 'utf8' });
  assert.match(stderr, /dial unix \/none: connect: no such file or directory/);
  await start();
  assert.match(await version(), /ApiVersion/);
  const asked = ask.replace(/^docker /, `'${dockerCli()}' `).replace('unix:///run/engine.sock', `unix://${socketPath}`);
  assert.match(run('sh', '-c', asked), /^ Engine:\n {2}Version: /m);

  const image = await call(socketPath, 'POST', '/images/create?fromSrc=-&repo=box', { body: tarOf(busyboxEntries()) });
  assert.equal(image.status, 200, image.text);
  const body = { Image: 'box', Cmd: ['sleep', '1000000'], HostConfig: { NetworkMode: 'none' } };
  const { Id } = await callJson<{ Id: string }>(socketPath, 'POST', '/containers/create', { json: body });
  await callJson(socketPath, 'POST', `/containers/${Id}/start`);
  const pid = async (): Promise<number> =>
    (await callJson<{ State: { Pid: number } }>(socketPath, 'GET', `/containers/${Id}/json`)).State.Pid;
  const before = await pid();

  // The configuration of an operator stays.
  const config = '{ "live-restore": true, "labels": ["kept=1"] }\n';
  writeFileSync(join(root, 'etc/engine/daemon.json'), config);
  dpkg('--force-confold', '-i', makePackage('1.1'));
  assert.equal(await pid(), before, 'the running daemon does not read its program again');
  await stop('SIGTERM');
  await start();
  assert.equal(await pid(), before);
  assert.equal(readFileSync(join(root, 'etc/engine/daemon.json'), 'utf8'), config);
  const info = await callJson<{ Labels: string[] }>(socketPath, 'GET', '/info');
  assert.deepEqual(info.Labels, ['kept=1']);
  await callJson(socketPath, 'DELETE', `/containers/${Id}?force=1`);
  assert.equal(inRoot('dpkg-query', '-Wf', '${Version}', 'engined'), '1.1');

  await stop('SIGTERM');
  dpkg('-r', 'engined');
  assert.ok(!existsSync(join(root, 'usr/bin/engined')));
  assert.ok(existsSync(join(root, 'etc/engine/daemon.json')));
  mkdirSync(join(root, 'var/lib/engine'), { recursive: true });
  writeFileSync(join(root, 'var/lib/engine/data'), '');
  dpkg('-P', 'engined');
  assert.ok(existsSync(join(root, 'var/lib/engine/data')), 'data is gone');
  assert.deepEqual(additions(), []);
});

test('the archive is installed, again over itself, and taken away', () => {
  const place = join(shared, 'archive');
  mkdirSync(place);
  for (const name of readdirSync(shared)) {
    if (/^engined-1\.1-linux-.*\.tar$/.test(name)) renameSync(join(shared, name), join(place, name));
  }
  // It is not compressed here, and for the processor of this machine.
  const commands = guide('Archive').replace(/-linux-amd64\.tar\.xz/, '-linux-*.tar');
  for (let i = 0; i < 2; i++) walk(place, commands);
  assert.match(inRoot('engined', '--version'), /^engined version /);
  assert.ok(existsSync(join(root, 'etc/systemd/system/engined.socket')));
  walk(join(place, 'engined-1.1'), './install.sh --uninstall');
  assert.deepEqual(additions(), ['./etc/engine/daemon.json'], 'the configuration stays, and nothing else');
});
