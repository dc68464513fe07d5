/**
 * node scripts/peers.mjs [VERSION]: fetches the programs of others that tests and benches use beside ours. They are not
 * installed, as an installation would start a daemon. The docker CLI, compose and buildx of today, which Debian has in
 * its development suite only, are unpacked. dockerd gets a root directory of the Debian release that has it, with the
 * containerd, runc and iptables of that release. Plain Node.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeDebianRoot } from './debian-root.mjs';
import { findProgram, installPackages, ROOT, run } from './ensure-packages.mjs';

/** `npm ci` empties it, so that what is there is never older than the dependencies. */
const CACHE = join(ROOT, 'node_modules', '.cache');
/** The CLI needs nothing but the C library of any Debian that is supported. */
const CLI_SUITE = 'sid';
/** Which Debian release has which dockerd. The first is the peer where none is named. */
const DOCKERD_SUITES = new Map([
  ['28.5', 'sid'],
  ['26.1', 'trixie'],
  ['20.10', 'bookworm'],
]);
const PEERS = [...DOCKERD_SUITES.keys()];
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/** Unpacks the package that `download` puts into a directory to `name` below the cache. */
function unpack(name, download) {
  const target = join(CACHE, name);
  if (existsSync(target)) return;
  if (process.getuid?.() !== 0 || findProgram('apt-get') === undefined) {
    throw new Error(`${name} is missing; as root on Debian it would be unpacked from the package of that name`);
  }
  console.error(`unpacking ${name} (not installed)`);
  const fresh = `${target}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    download(fresh);
    const archive = readdirSync(fresh).find((file) => file.endsWith('.deb'));
    if (archive === undefined) throw new Error(`apt-get download left no package of ${name}`);
    run('dpkg-deb', ['-x', join(fresh, archive), join(fresh, 'root')]);
    renameSync(join(fresh, 'root'), target);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

/** Where this machine gets Debian's packages from. */
function mirror() {
  const args = ['indextargets', '--format', '$(REPO_URI) $(COMPONENT)', 'Created-By: Packages'];
  const lines = spawnSync('apt-get', args, { encoding: 'utf8' })
    .stdout.split('\n')
    .map((line) => line.split(' '));
  const uri = lines.find(([repository, component]) => component === 'main' && /\/debian\/?$/.test(repository))?.[0];
  if (uri === undefined)
    throw new Error('apt has no source of Debian: its sources name no address that ends in /debian');
  return uri;
}

/** A package of another suite, by lists of its own: those of the machine stay as they are. */
function downloadFromSuite(suite, name, directory) {
  for (const path of ['lists/partial', 'archives/partial']) mkdirSync(join(directory, path), { recursive: true });
  const sources = join(directory, 'sources.list');
  writeFileSync(sources, `deb [signed-by=${KEYRING}] ${mirror()} ${suite} main\n`);
  const options = [
    `Dir::Etc::sourcelist=${sources}`,
    'Dir::Etc::sourceparts=/dev/null',
    'Dir::Etc::preferencesparts=/dev/null',
    `Dir::State::lists=${join(directory, 'lists')}`,
    `Dir::Cache=${directory}`,
    'Acquire::Check-Valid-Until=false',
    'Acquire::Languages=none',
    'APT::Sandbox::User=root',
  ].flatMap((option) => ['-o', option]);
  for (const action of [['update'], ['download', name]])
    run('apt-get', ['-qq', ...options, ...action], { cwd: directory });
}

/** The unmodified docker CLI, compose and buildx. Tests run the same ones everywhere, whatever is on PATH. */
export function ensureCli() {
  for (const name of ['docker-cli', 'docker-compose', 'docker-buildx'])
    unpack(name, (directory) => downloadFromSuite(CLI_SUITE, name, directory));
}

/** A root directory with dockerd in it. test/support/dockerd.ts runs it there. */
function ensureDockerd(version) {
  const target = join(CACHE, `dockerd-${version}`);
  if (existsSync(target)) return;
  if (process.getuid?.() !== 0) throw new Error(`${target} is missing, and only root can make it`);
  installPackages({ debootstrap: 'debootstrap', unshare: 'util-linux' });
  const fresh = `${target}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    makeDebianRoot(DOCKERD_SUITES.get(version), fresh);
    // Its packages start services of their own otherwise.
    writeFileSync(join(fresh, 'usr/sbin/policy-rc.d'), '#!/bin/sh\nexit 101\n', { mode: 0o755 });
    const install = [
      'mount -t proc proc /proc',
      'apt-get -qq update',
      'apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends docker.io iptables iproute2 kmod ' +
        'pigz procps xz-utils fuse-overlayfs fuse3 socat',
      'apt-get clean',
    ].join(' && ');
    run('unshare', ['--mount', '--propagation', 'private', 'chroot', fresh, 'sh', '-c', install], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    const said = spawnSync('chroot', [fresh, 'dockerd', '--version'], { encoding: 'utf8' }).stdout ?? '';
    if (!said.includes(` ${version}.`))
      throw new Error(`${DOCKERD_SUITES.get(version)} has no dockerd ${version}: ${said}`);
    renameSync(fresh, target);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

/**
 * Takes `--peer VERSION` out of the arguments of a command, and names that dockerd to the programs that it starts
 * (test/support/dockerd.ts). Returns the version and the other arguments.
 */
export function peerOf(args) {
  const index = args.indexOf('--peer');
  if (index < 0) return { rest: args };
  const peer = args[index + 1] ?? '';
  process.env.ENGINE_PEER = peer;
  return { peer, rest: args.toSpliced(index, 2) };
}

/** Throws an Error that says what is missing and why it could not be fetched. */
export function ensurePeers(version = PEERS[0]) {
  if (!PEERS.includes(version)) throw new Error(`there is no peer ${version}; there are ${PEERS.join(', ')}`);
  ensureCli();
  ensureDockerd(version);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    ensurePeers(process.argv[2]);
  } catch (error) {
    console.error(`peers: ${error.message}`);
    process.exitCode = 1;
  }
}
