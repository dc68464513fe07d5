/**
 * Installs what a command of this repository needs from Debian, so that each works as the first one on a fresh machine.
 *
 *   node scripts/ensure-packages.mjs run|quickstart|test|bench
 *
 * What counts is the program, not the package: where a program is present, whoever installed it, nothing is touched.
 * Without root or apt it names what is missing and exits 1. Plain Node: node_modules may not exist yet.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** The docker CLI and dockerd, unpacked and never installed: npm ci empties this directory. */
const PEER_DIR = join(ROOT, 'node_modules', '.cache', 'docker.io');
const POLICY = '/usr/sbin/policy-rc.d';

/** Program -> Debian package. */
const RUN = { containerd: 'containerd', runc: 'runc', iptables: 'iptables', ip: 'iproute2' };
const QUICKSTART = { ...RUN, 'docker-registry': 'docker-registry', busybox: 'busybox-static' };
const TEST = { ...QUICKSTART, crun: 'crun', skopeo: 'skopeo', bzip2: 'bzip2', 'mkfs.xfs': 'xfsprogs', xz: 'xz-utils', pigz: 'pigz', zstd: 'zstd', openssl: 'openssl', 'tini-static': 'tini', curl: 'curl', 'docker-compose': 'docker-compose', script: 'bsdutils', unshare: 'util-linux', 'systemd-socket-activate': 'systemd', socat: 'socat' };
const BENCH = { ...TEST, wrk: 'wrk', dnsperf: 'dnsperf' };
const PURPOSES = { run: RUN, quickstart: QUICKSTART, test: TEST, bench: BENCH };
/** dockerd loads it; the other libraries that it needs are on every Debian. */
const DEVMAPPER = { file: 'libdevmapper.so.1.02.1', package: 'libdevmapper1.02.1' };

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

function isPresent(program) {
  const path = findProgram(program);
  if (path === undefined) return false;
  // Images are made from busybox: only the static one runs in an image that has no libraries.
  return program !== 'busybox' || isStatic(path);
}

/** Whether a 64-bit ELF program needs no loader: it has no PT_INTERP (3) among its program headers. */
function isStatic(path) {
  const elf = readFileSync(path);
  const headers = Number(elf.readBigUInt64LE(32));
  const types = Array.from({ length: elf.readUInt16LE(56) }, (_, index) => elf.readUInt32LE(headers + index * elf.readUInt16LE(54)));
  return !types.includes(3);
}

function hasLibrary(file) {
  return spawnSync('/sbin/ldconfig', ['-p'], { encoding: 'utf8' }).stdout?.includes(file) ?? false;
}

function fail(reason) {
  throw new Error(reason);
}

function run(program, args, options = {}) {
  const { status, error } = spawnSync(program, args, { stdio: ['ignore', 2, 2], ...options });
  if (error !== undefined || status !== 0) fail(`${program} ${args.join(' ')} failed${error === undefined ? ` with status ${status}` : `: ${error.message}`}`);
}

const aptEnvironment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
let listsAreFresh = false;

function apt(args, options = {}) {
  const always = ['-o', 'DPkg::Lock::Timeout=300', '-o', 'Dpkg::Use-Pty=0'];
  if (!listsAreFresh) run('apt-get', ['-qq', ...always, 'update'], { env: aptEnvironment });
  listsAreFresh = true;
  run('apt-get', ['-qq', '-y', ...always, ...args], { env: aptEnvironment, ...options });
}

function missingPackages(purpose) {
  const missing = Object.entries(PURPOSES[purpose]).filter(([program]) => !isPresent(program)).map(([, name]) => name);
  if (purpose === 'bench' && !hasLibrary(DEVMAPPER.file)) missing.push(DEVMAPPER.package);
  return missing;
}

/** Installs the missing packages of a purpose. Throws an Error that says what is missing and why it could not. */
export function ensurePackages(purpose) {
  const missing = missingPackages(purpose);
  if (missing.length === 0) return;
  const wanted = `missing: ${missing.join(', ')}`;
  if (process.getuid?.() !== 0) fail(`${wanted}; run as root, or install them: apt-get install --no-install-recommends ${missing.join(' ')}`);
  if (findProgram('apt-get') === undefined) fail(`${wanted} (Debian package names), and there is no apt-get to install them with`);
  console.error(`installing ${missing.join(', ')}`);
  // Some of these packages start services of their own, such as a registry on port 5000. The engine starts what it needs.
  const forbidServices = !existsSync(POLICY);
  if (forbidServices) writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    apt(['install', '--no-install-recommends', ...missing]);
  } finally {
    if (forbidServices) rmSync(POLICY, { force: true });
  }
  const still = missingPackages(purpose);
  if (still.length > 0) fail(`installed, but still not found: ${still.join(', ')}`);
}

/**
 * The unmodified docker CLI and dockerd. Debian has them in docker.io, whose installation would start a daemon: so the
 * package is only unpacked. Tests can do without dockerd where a CLI is on PATH: those that compare with it are skipped.
 */
export function ensureDocker(purpose) {
  if (existsSync(join(PEER_DIR, 'usr', 'sbin', 'dockerd'))) return;
  try {
    unpackDocker();
  } catch (error) {
    if (purpose === 'bench' || findProgram('docker') === undefined) throw error;
    console.error(`tests that compare with dockerd are skipped: ${error.message}`);
  }
}

function unpackDocker() {
  if (process.getuid?.() !== 0 || findProgram('apt-get') === undefined) fail('there are no docker CLI and dockerd; as root on Debian they would be unpacked from docker.io');
  console.error('unpacking the docker CLI and dockerd from docker.io (not installed)');
  const fresh = `${PEER_DIR}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    // Without the download sandbox: its user may not write below a directory of root's.
    apt(['-o', 'APT::Sandbox::User=root', 'download', 'docker.io'], { cwd: fresh });
    const archive = readdirSync(fresh).find((name) => name.endsWith('.deb'));
    if (archive === undefined) fail('apt-get download docker.io left no package');
    run('dpkg-deb', ['-x', join(fresh, archive), join(fresh, 'root')]);
    rmSync(PEER_DIR, { recursive: true, force: true });
    renameSync(join(fresh, 'root'), PEER_DIR);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const purpose = process.argv[2] ?? '';
  try {
    if (!Object.hasOwn(PURPOSES, purpose)) fail(`usage: ensure-packages.mjs ${Object.keys(PURPOSES).join('|')}`);
    ensurePackages(purpose);
    if (purpose === 'test' || purpose === 'bench') ensureDocker(purpose);
  } catch (error) {
    console.error(`ensure-packages: ${error.message}`);
    process.exitCode = 1;
  }
}
