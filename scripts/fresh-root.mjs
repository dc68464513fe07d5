/**
 * node scripts/fresh-root.mjs RELEASE [--node MAJOR] COMMAND...: runs each command as the first one on a fresh Debian
 * machine.
 *
 * The machine is a directory with the base system of that release (bookworm, trixie, sid), npm as this machine has it,
 * and a copy of this repository without anything that was built or installed. Node is that of this machine, or the
 * newest of the version that is named, which comes from npm's registry. So a package that the repository needs and does
 * not ask for is missed here, and not by a newcomer. What the machine needs to reach the network (resolver,
 * certificates, npm's and apt's settings) is taken along. Needs root. Plain Node.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { copy, makeDebianRoot } from './debian-root.mjs';
import { findProgram, installPackages, ROOT } from './ensure-packages.mjs';
import { command } from './prepare.mjs';

const RELEASES = ['bookworm', 'trixie', 'sid'];
/** The versions of Node that are supported, as README.md says. */
const NODES = ['20', '22', '24'];
const HOME = '/root/engined';
/** Variables that say how this machine reaches others; all else is as on a machine where nobody has set anything. */
const TAKEN_ALONG = /^(CI|TERM|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|(https?|no|all)_proxy)$/i;

/**
 * The root has its own processes, mounts and /run, but it shares the kernel's parts (/sys, /dev) with the machine. It
 * is entered by pivot_root and not by chroot, because a thread that enters another mount namespace gets that
 * namespace's root, which must be this directory too.
 */
const ENTER = `
set -e
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p old
pivot_root . old
cd "${HOME}"
umount -l /old
exec sh -c "$2"
`;

/** Fetches the newest Node of a major version into a directory, and returns its program. */
function fetchNode(major, directory) {
  const name = `node-linux-${process.arch}`;
  console.error(`fetching ${name}@${major}`);
  const pack = ['pack', '--silent', '--pack-destination', directory, `${name}@${major}`];
  const archive = execFileSync('npm', pack, { encoding: 'utf8', cwd: directory }).trim();
  execFileSync('tar', ['-xzf', archive, 'package/bin/node'], { cwd: directory });
  return join(directory, 'package/bin/node');
}

/** Node and npm as a package or an archive of Node lays them out: npm is a directory beside, reached by links. */
function installNode(root, node) {
  const npm = dirname(dirname(realpathSync(findProgram('npm'))));
  copy(node, join(root, 'usr/bin/node'));
  copy(npm, join(root, 'usr/lib/node_modules/npm'));
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(root, 'usr/bin', name));
}

/** Lists the files that a clone by git would have, and changes that are not committed yet. */
function copyRepository(root) {
  const list = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  for (const path of list.split('\0').filter((name) => name !== '' && existsSync(join(ROOT, name)))) {
    copy(join(ROOT, path), join(root, HOME, path));
  }
}

function makeRoot(release, root, node) {
  makeDebianRoot(release, root);
  installNode(root, node);
  copyRepository(root);
}

async function runIn(root, line) {
  console.error(`in the new root: ${line}`);
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => TAKEN_ALONG.test(name)));
  const child = spawn(
    'setpriv',
    [
      '--pdeathsig',
      'KILL',
      'unshare',
      '--mount',
      '--pid',
      '--fork',
      '--kill-child',
      '--propagation',
      'private',
      'sh',
      '-c',
      ENTER,
      'enter',
      root,
      line,
    ],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: {
        ...env,
        PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        HOME: '/root',
        LANG: 'C.UTF-8',
      },
    },
  );
  // unshare leaves other signals to the program in the root, which may go on. All in the root end with unshare.
  const end = () => child.kill('SIGKILL');
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, end);
  const [code, signal] = await once(child, 'exit');
  for (const name of ['SIGINT', 'SIGTERM']) process.off(name, end);
  if (code !== 0) throw new Error(`${line} failed with ${signal ?? `status ${code}`}`);
}

await command('fresh-root', async () => {
  const { values, positionals } = parseArgs({ options: { node: { type: 'string' } }, allowPositionals: true });
  const [release, ...lines] = positionals;
  const isNodeKnown = values.node === undefined || NODES.includes(values.node);
  if (!RELEASES.includes(release) || lines.length === 0 || !isNodeKnown)
    throw new Error(`usage: fresh-root.mjs ${RELEASES.join('|')} [--node ${NODES.join('|')}] COMMAND...`);
  if (process.getuid() !== 0) throw new Error('a root directory is made and entered by root only');
  installPackages({ debootstrap: 'debootstrap', git: 'git', unshare: 'util-linux' });
  const directory = mkdtempSync('/var/tmp/engined-fresh-');
  try {
    const node = values.node === undefined ? process.execPath : fetchNode(values.node, directory);
    makeRoot(release, join(directory, 'base'), node);
    for (const [index, line] of lines.entries()) {
      const root = join(directory, String(index));
      // Each command finds the machine as it was before the others.
      execFileSync('cp', ['-a', '--reflink=auto', join(directory, 'base'), root]);
      await runIn(root, line);
      rmSync(root, { recursive: true, force: true });
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
