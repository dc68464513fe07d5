/**
 * npm run test:vm [-- PART...]: runs the tests of test/vm in a virtual machine that has what this one may lack: systemd
 * as the first process, control groups of version 2 alone, AppArmor. The machine is emulated by QEMU, so it runs on
 * hosts without virtualization too, and takes ten times as long as a real one. It gets the package of the daemon on a
 * second disk, sends the report of the tests over a serial line, and switches itself off. What it wrote is forgotten.
 * A machine that hangs is started once more, and that is said.
 * With --native the machine's kernel is a program of this one instead (scripts/test-kernel.mjs), which runs what is not
 * the kernel's at full speed.
 * UPGRADES_COUNT=50 UPGRADE_PORTS=100 UPGRADE_REQUESTS=200 is the long run of `package`: so many upgrades, published
 * ports that are probed every 10 ms, and requests in a second, if the machine can do as many. ZFS_ROUNDS=5 is that of
 * `zfs-speed`, which compares with the dockerd that `node scripts/peers.mjs 20.10` fetches, and ENGINE_CHURN_ROUNDS=200
 * that of `zfs-kills`, IMAGES_COUNT=30 that of `zfs-agrees`; --native is for all of these.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { installPackages, ROOT, run } from './ensure-packages.mjs';
import { command, prepare } from './prepare.mjs';
import { ADDRESSES, startNative } from './native-machine.mjs';
import { ensureKernel } from './test-kernel.mjs';
import { ensureMachine, makeDisk } from './test-machine.mjs';

/** A machine that hangs is ended after this long. */
const LIMIT_MS = 90 * 60_000;
/** A machine that says nothing for so long hangs, as an emulated one may. A long run is one test, which is silent. */
const SILENCE_MS = 20 * 60_000;
const MEMORY_MIB = 3072;
const PROJECT_SIZE = '1G';
/** The smallest that mkfs.xfs makes, and sparse. */
const XFS_SIZE = '300M';
const CONSOLE_LINES = 40;
/** Variables with numbers that the tests in the machine know. */
const PASSED_ON = [
  'UPGRADES_COUNT',
  'UPGRADE_PORTS',
  'UPGRADE_REQUESTS',
  'ZFS_ROUNDS',
  'ENGINE_CHURN_ROUNDS',
  'IMAGES_COUNT',
];
/** Node needs these to run the daemon and its tests. */
const TAKEN_ALONG = ['dist', 'packaging', 'scripts', 'package.json', 'node_modules/.cache/docker-cli'];
/** The peer that `zfs-speed` compares with, and without which it skips itself (node scripts/peers.mjs 20.10). */
const PEER = ['sbin/dockerd', 'lib/x86_64-linux-gnu/libdevmapper.so.1.02.1'].map(
  (path) => `node_modules/.cache/dockerd-20.10/usr/${path}`,
);

/** The packages that run in production, as package-lock.json lists them. */
function dependencies() {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'node_modules', '.package-lock.json'), 'utf8'));
  return Object.keys(packages).filter((path) => packages[path].dev !== true);
}

function makeProjectDisk(directory, parts, isNative) {
  const project = join(directory, 'project');
  const peer = process.env.ZFS_ROUNDS !== undefined && PEER.every((path) => existsSync(join(ROOT, path))) ? PEER : [];
  for (const path of [...TAKEN_ALONG, ...peer, ...dependencies()])
    cpSync(join(ROOT, path), join(project, path), { recursive: true, verbatimSymlinks: true });
  // An uncompressed package with its own Node is made, and unpacked there, in the shortest time.
  const options = ['--built', '--with-node', '--compression', 'none', '--version', '1.0'];
  run(process.execPath, [join(ROOT, 'scripts/package.mjs'), ...options, '--output', join(project, 'package')]);
  // The machine lacks the program that makes this file system.
  run('truncate', ['-s', XFS_SIZE, join(project, 'xfs.img')]);
  run('mkfs.xfs', ['-q', join(project, 'xfs.img')]);
  writeFileSync(join(project, 'parts'), parts.map((part) => `${part}\n`).join(''));
  const counts = PASSED_ON.filter((name) => process.env[name] !== undefined);
  const lines = counts.map((name) => `${name}=${Number(process.env[name])}\n`);
  const { address, outside } = ADDRESSES;
  const native = isNative ? ['NATIVE=1\n', `ADDRESS=${address}\n`, `OUTSIDE=tcp://${outside}\n`] : [];
  writeFileSync(join(project, 'environment'), [...lines, ...native].join(''));
  const disk = join(directory, 'project.img');
  makeDisk(project, disk, PROJECT_SIZE);
  rmSync(project, { recursive: true });
  return disk;
}

/** The kernel has one module for labels of files and processes at a time. */
const SECURITY = { selinux: 'security=selinux selinux=1' };

function startEmulated(kind, project, console_) {
  const { disk, kernel, ramDisk } = ensureMachine(kind);
  const drive = (file) => ['-drive', `file=${file},if=virtio,format=raw,snapshot=on`];
  return spawn(
    'setpriv',
    [
      ...['--pdeathsig', 'KILL', 'qemu-system-x86_64', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2'],
      ...['-m', String(MEMORY_MIB), '-nodefaults', '-no-reboot', '-display', 'none', '-kernel', kernel],
      ...['-initrd', ramDisk, ...drive(disk), ...drive(project), '-serial', `file:${console_}`, '-serial', 'stdio'],
      ...[
        '-append',
        `root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off ${SECURITY[kind] ?? 'security=apparmor apparmor=1'}`,
      ],
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
}

/** Passes the report on, and resolves with the status that its last line has; undefined when there is none. */
async function report(output) {
  let status;
  for await (const raw of createInterface({ input: output })) {
    const line = raw.replace(/\r$/, '');
    const [, code] = /^tests ended with status (\d+)$/.exec(line) ?? [];
    if (code === undefined) console.log(line);
    else status = Number(code);
  }
  return status;
}

function isLongRun() {
  return PASSED_ON.some((name) => process.env[name] !== undefined);
}

/** Runs the tests in a machine. Resolves with their status, and whether the machine was ended because it hung. */
async function runMachine({ kind, isNative }, project, console_) {
  const machine = isNative
    ? startNative(kind, { project, console_, memoryMib: MEMORY_MIB })
    : startEmulated(kind, project, console_);
  const end = () => machine.kill('SIGKILL');
  let hung = false;
  const limits = [
    setTimeout(end, LIMIT_MS),
    setTimeout(
      () => {
        hung = true;
        end();
      },
      isLongRun() ? LIMIT_MS : SILENCE_MS,
    ),
  ];
  machine.stdout.on('data', () => limits[1].refresh());
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, end);
  const [status] = await Promise.all([report(machine.stdout), once(machine, 'exit')]);
  for (const limit of limits) clearTimeout(limit);
  for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, end);
  if (status === undefined) console.error(readFileSync(console_, 'utf8').split('\n').slice(-CONSOLE_LINES).join('\n'));
  return { status, hung };
}

await command('npm run test:vm', async () => {
  if (process.getuid() !== 0) throw new Error('the disk of the virtual machine is made by root only');
  prepare('test');
  const { values, positionals: parts } = parseArgs({
    options: { native: { type: 'boolean' } },
    allowPositionals: true,
  });
  const kind = ['zfs', 'selinux'].find((name) => parts.some((part) => part.startsWith(name))) ?? 'plain';
  const isNative = values.native === true;
  if (isNative && kind === 'selinux') throw new Error('selinux is not in the kernel of --native');
  installPackages({ setpriv: 'util-linux', ...(isNative ? {} : { 'qemu-system-x86_64': 'qemu-system-x86' }) });
  if (isNative) ensureKernel(kind);
  ensureMachine(kind);
  const directory = mkdtempSync(join(tmpdir(), 'engined-vm-'));
  try {
    const console_ = join(directory, 'console.log');
    const project = makeProjectDisk(directory, parts, isNative);
    let { status, hung } = await runMachine({ kind, isNative }, project, console_);
    if (hung) {
      console.error(`! the machine said nothing for ${SILENCE_MS / 60_000} minutes: it is started once more`);
      ({ status } = await runMachine({ kind, isNative }, project, console_));
    }
    if (status !== 0) throw new Error(status === undefined ? 'the machine ended before its tests did' : 'tests failed');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
