/**
 * Installs what a command of this repository needs from Debian, so that each works as the first one on a fresh machine.
 *
 *   node scripts/ensure-packages.mjs run|quickstart|rootless|test|bench
 *
 * The program counts, not the package: where a program is present, whoever installed it, nothing is touched.
 * Without root or apt it names what is missing and exits 1. Plain Node: node_modules may not exist yet.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));
const POLICY = '/usr/sbin/policy-rc.d';

/**
 * Program or library -> Debian package. What the daemon uses is one list, which `engined check` reads, too. `a | b` is
 * the first one that this release has, as in the dependencies of Debian: a program may have moved to another package.
 */
const REQUIREMENTS = JSON.parse(readFileSync(join(ROOT, 'packaging', 'requirements.json'), 'utf8'));
const needed = (isWanted) =>
  Object.fromEntries(REQUIREMENTS.filter(({ need }) => isWanted(need)).map((one) => [one.program, one.package]));
const RUN = needed((need) => need !== 'rootless');
const ROOTLESS = needed((need) => need === 'rootless');
const QUICKSTART = { ...RUN, ip: 'iproute2', 'docker-registry': 'docker-registry', busybox: 'busybox-static' };
const TEST = {
  ...QUICKSTART,
  crun: 'crun',
  skopeo: 'skopeo',
  'mkfs.xfs': 'xfsprogs',
  'mkfs.ext4': 'e2fsprogs',
  'mkfs.btrfs': 'btrfs-progs',
  pigz: 'pigz',
  zstd: 'zstd',
  openssl: 'openssl',
  curl: 'curl',
  'docker-compose': 'docker-compose',
  script: 'bsdutils',
  unshare: 'util-linux',
  'systemd-socket-activate': 'systemd',
  socat: 'socat',
  git: 'git',
  'ssh-keygen': 'openssh-client',
  sshd: 'openssh-server',
  prometheus: 'prometheus',
  promtool: 'prometheus',
  ...ROOTLESS,
  pasta: 'passt',
};
const BENCH = { ...TEST, wrk: 'wrk', dnsperf: 'dnsperf' };
const PURPOSES = {
  run: RUN,
  quickstart: QUICKSTART,
  rootless: { ...QUICKSTART, ...ROOTLESS },
  test: TEST,
  bench: BENCH,
};

/** The daemons live in sbin, which is not on every PATH. */
const SEARCH = [...(process.env.PATH ?? '').split(delimiter), '/usr/local/sbin', '/usr/sbin', '/sbin'];

export function findProgram(name) {
  for (const dir of SEARCH) {
    if (dir === '') continue;
    try {
      accessSync(join(dir, name), constants.X_OK);
      return join(dir, name);
    } catch {
      // Not in this directory.
    }
  }
  return undefined;
}

/** Where the linker looks without being told, on Debian and others. */
const TRIPLETS = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' };
const LIBRARY_DIRS = ['/usr/local/lib', `/usr/lib/${TRIPLETS[process.arch]}`, '/usr/lib64', '/usr/lib'];

function isPresent(program) {
  if (program.includes('.so.')) return LIBRARY_DIRS.some((dir) => existsSync(join(dir, program)));
  const path = findProgram(program);
  if (path === undefined) return false;
  // Images are made from busybox: only the static one runs in an image that has no libraries.
  return program !== 'busybox' || isStatic(path);
}

/** Whether a 64-bit ELF program needs no loader: it has no PT_INTERP (3) among its program headers. */
function isStatic(path) {
  const elf = readFileSync(path);
  const headers = Number(elf.readBigUInt64LE(32));
  const types = Array.from({ length: elf.readUInt16LE(56) }, (_, index) =>
    elf.readUInt32LE(headers + index * elf.readUInt16LE(54)),
  );
  return !types.includes(3);
}

function fail(reason) {
  throw new Error(reason);
}

export function run(program, args, options = {}) {
  const { status, error } = spawnSync(program, args, { stdio: ['ignore', 2, 2], ...options });
  if (error !== undefined || status !== 0)
    fail(`${program} ${args.join(' ')} failed${error === undefined ? ` with status ${status}` : `: ${error.message}`}`);
}

const aptEnvironment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
let listsAreFresh = false;

const APT_OPTIONS = ['-qq', '-o', 'DPkg::Lock::Timeout=300', '-o', 'Dpkg::Use-Pty=0'];

/** Updates the lists of apt the first time. */
function refreshLists() {
  if (!listsAreFresh) run('apt-get', [...APT_OPTIONS, 'update'], { env: aptEnvironment });
  listsAreFresh = true;
}

/** Runs apt-get with `args`, with fresh lists. */
export function apt(args, options = {}) {
  refreshLists();
  run('apt-get', [...APT_OPTIONS, '-y', ...args], { env: aptEnvironment, ...options });
}

/** The first of the packages `a | b` that apt knows. */
function availablePackage(alternatives) {
  const names = alternatives.split(' | ');
  return names.find((name) => spawnSync('apt-cache', ['show', name]).status === 0) ?? names.at(-1);
}

function missingPackages(programs) {
  return [
    ...new Set(
      Object.entries(programs)
        .filter(([program]) => !isPresent(program))
        .map(([, name]) => name),
    ),
  ];
}

/**
 * Installs the Debian packages of those programs that are missing. `programs` maps a program to its package.
 * Throws an Error that says what is missing and why it could not be installed.
 */
export function installPackages(programs) {
  const missing = missingPackages(programs);
  if (missing.length === 0) return;
  const wanted = `missing: ${missing.join(', ')}`;
  if (process.getuid?.() !== 0) {
    const names = missing.map(availablePackage);
    fail(`${wanted}; run as root, or install them: apt-get install --no-install-recommends ${names.join(' ')}`);
  }
  if (findProgram('apt-get') === undefined)
    fail(`${wanted} (Debian package names), and there is no apt-get to install them with`);
  refreshLists();
  installByName(missing.map(availablePackage));
  const still = missingPackages(programs);
  if (still.length > 0) fail(`installed, but still not found: ${still.join(', ')}`);
}

function installByName(packages) {
  console.error(`installing ${packages.join(', ')}`);
  // Some of these packages start services of their own, such as a registry on port 5000. The engine starts what it
  // needs.
  const forbidServices = !existsSync(POLICY);
  if (forbidServices) writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    apt(['install', '--no-install-recommends', ...packages]);
  } finally {
    if (forbidServices) rmSync(POLICY, { force: true });
  }
}

/** Installs the missing packages of a purpose. Throws an Error that says what is missing and why it could not. */
export function ensurePackages(purpose) {
  installPackages(PURPOSES[purpose]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const purpose = process.argv[2] ?? '';
  try {
    if (!Object.hasOwn(PURPOSES, purpose)) fail(`usage: ensure-packages.mjs ${Object.keys(PURPOSES).join('|')}`);
    ensurePackages(purpose);
  } catch (error) {
    console.error(`ensure-packages: ${error.message}`);
    process.exitCode = 1;
  }
}
