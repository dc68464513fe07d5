/**
 * A sandbox for a test file: network, mounts, processes, a temporary directory and a prefix for names of control groups
 * that are its own. Whatever the file made is gone with it, also when the file failed, hung or was killed: the first
 * process of a process namespace takes all others with it, and the last process of a network namespace its links,
 * rules and ports. What is left then, files and control groups, is removed here.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const CGROUPS = '/sys/fs/cgroup';
const CLEANUP_TIMEOUT_MS = 60_000;
/** The unit of times below /proc, the same on all Linux. */
const TICKS_PER_SECOND = 100;

/**
 * A new network namespace has nothing but a loopback that is down; some tests want an address as a machine has one.
 * Forwarding is on here from the beginning: on a machine without it the first daemon switches it on and refuses
 * forwarded packets that no rule allows, and leaves both settings behind.
 */
const LINKS = [
  'link set lo up',
  'link add machine0 type veth peer name machine1',
  'link set machine1 up',
  'address add 192.0.2.2/24 dev machine0',
  'link set machine0 up',
];
const NETWORK = [
  'echo 1 > /proc/sys/net/ipv4/ip_forward',
  'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding',
  `printf '%s\\n' ${LINKS.map((line) => `'${line}'`).join(' ')} | ip -batch -`,
].join(' && ');

/** Names of network namespaces, and plugins, are files below /run, which is shared: each sandbox has its own there. */
const MOUNTS = ['/run/netns', '/run/docker/plugins']
  .map((path) => `mkdir -p ${path} && mount -t tmpfs files ${path}`)
  .join(' && ');
/** Files in memory cost no processor time for a journal, and go with the sandbox. */
const FILES_IN_MEMORY = 'mount -t tmpfs -o mode=755 files "$TMPDIR"';
/** A btrfs in a sparse file, which the mount hides. */
const FILES_ON_BTRFS = [
  'truncate -s 8G "$TMPDIR/btrfs"',
  'mkfs.btrfs -q "$TMPDIR/btrfs"',
  'mount -o loop "$TMPDIR/btrfs" "$TMPDIR"',
].join(' && ');

/**
 * Nothing in a sandbox reaches the world. Certificates of the machine for that are left out, because every Node would
 * read all of them as it starts.
 */
const { NODE_EXTRA_CA_CERTS: _certificates, ...HOST } = process.env;

const running = new Map();
let countedCpuSeconds = 0;
/** Set once all are ended: nothing begins after that. */
let isOver = false;

/** Makes the directory of a sandbox, whose name marks all that is the sandbox's. */
function makeOwn() {
  for (;;) {
    // The groups of a sandbox in a sandbox go with the outer one too. Names of links have 15 characters at most.
    const mark = `${process.env.ENGINE_TEST_MARK ?? ''}t${randomBytes(2).toString('hex')}`;
    const temp = join(tmpdir(), mark);
    try {
      mkdirSync(temp, { mode: 0o755 });
      return { mark, temp };
    } catch (error) {
      // So few names come again, in one of fifty runs of all tests.
      if (error.code !== 'EEXIST') throw error;
    }
  }
}

/**
 * Runs a program of this repository in a new sandbox, its output in the file `log`. `timeoutMs` ends all of it. Its
 * temporary directory is on the machine's disk, or with `inMemory` a file system of its own in memory; with `onBtrfs`
 * it is a btrfs there. Resolves, once everything is gone, with `status`, the exit code or a text that says how it ended
 * otherwise, and with the processor time that all its processes took.
 */
export async function runInSandbox(command, { cwd, log, timeoutMs, inMemory = false, onBtrfs = false, env = {} }) {
  if (isOver) return new Promise(() => {});
  const { mark, temp } = makeOwn();
  const output = openSync(log, 'a');
  const files = [...(inMemory ? [FILES_IN_MEMORY] : []), ...(onBtrfs ? [FILES_ON_BTRFS] : [])];
  // A first process must collect those that lost their parents, as shims do: tini does. The sandbox ends with us.
  const child = spawn(
    'setpriv',
    [
      '--pdeathsig',
      'KILL',
      'unshare',
      '--net',
      '--mount',
      '--pid',
      '--fork',
      '--kill-child',
      '--mount-proc',
      'tini-static',
      '-s',
      '--',
      'sh',
      '-c',
      [NETWORK, MOUNTS, ...files, 'exec "$@"'].join(' && '),
      'sandbox',
      ...command,
    ],
    { cwd, stdio: ['ignore', output, output], env: { ...HOST, ...env, TMPDIR: temp, ENGINE_TEST_MARK: mark } },
  );
  closeSync(output);
  running.set(child, { mark, temp });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGKILL');
  }, timeoutMs);
  try {
    const [code, signal] = await once(child, 'exit');
    const cpuSeconds = newCpuSeconds();
    if (late) return { status: `did not end within ${timeoutMs / 1000} s`, cpuSeconds };
    return { status: code ?? `ended by ${signal}`, cpuSeconds };
  } finally {
    clearTimeout(timer);
    await clean(mark, temp);
    running.delete(child);
  }
}

/**
 * The processor time of the children that have ended since the last call. A sandbox hands on the time of all its
 * processes, because its first process collects them.
 */
function newCpuSeconds() {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1].split(' ');
  const all = (Number(fields[13]) + Number(fields[14])) / TICKS_PER_SECOND;
  const added = all - countedCpuSeconds;
  countedCpuSeconds = all;
  return added;
}

/** Ends all sandboxes, for a run that is interrupted. */
export async function endSandboxes() {
  isOver = true;
  const all = [...running];
  for (const [child] of all) child.kill('SIGKILL');
  const cleaned = await Promise.allSettled(all.map(async ([, { mark, temp }]) => clean(mark, temp)));
  for (const { reason } of cleaned) if (reason) console.error(reason.message);
}

/**
 * Removes the files and control groups that outlive a sandbox's processes. It tries again for a moment, because a
 * control group is busy until its processes are dead, and they may make files until then.
 */
async function clean(mark, temp) {
  const deadline = Date.now() + CLEANUP_TIMEOUT_MS;
  while (!(removeGroups(mark) && removeFiles(temp))) {
    if (Date.now() > deadline) throw new Error(`control groups ${mark}* or files in ${temp} are still in use`);
    await sleep(50);
  }
}

function removeFiles(path) {
  try {
    rmSync(path, { recursive: true, force: true });
    return true;
  } catch {
    return false;
  }
}

/** Whether no control group whose name begins with `mark` is left in any hierarchy. */
function removeGroups(mark) {
  if (!existsSync(CGROUPS)) return true;
  const roots = [CGROUPS, ...directories(CGROUPS).map((name) => join(CGROUPS, name))];
  return roots
    .flatMap((root) =>
      directories(root)
        .filter((name) => name.startsWith(mark))
        .map((name) => join(root, name)),
    )
    .map((path) => removeTree(path))
    .every(Boolean);
}

/** Control groups are removed from the leaves up; their files go by themselves. */
function removeTree(path) {
  const isEmpty = directories(path)
    .map((name) => removeTree(join(path, name)))
    .every(Boolean);
  if (!isEmpty) return false;
  try {
    // With control groups of version 1 a frozen process does not even die by SIGKILL.
    const state = join(path, 'freezer.state');
    if (existsSync(state)) writeFileSync(state, 'THAWED');
    rmdirSync(path);
    return true;
  } catch {
    return !existsSync(path);
  }
}

function directories(path) {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  } catch {
    // It has gone meanwhile.
    return [];
  }
}
