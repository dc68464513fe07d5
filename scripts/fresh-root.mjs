/**
 * node scripts/fresh-root.mjs RELEASE COMMAND...: runs each command as the first one on a fresh Debian machine.
 *
 * The machine is a directory with the base system of that release (bookworm, trixie, sid), Node and npm as this machine
 * has them, and a copy of this repository without anything that was built or installed. So a package that the
 * repository needs and does not ask for is missed here, and not by a newcomer. What the machine needs to reach the
 * network (resolver, certificates, npm's and apt's settings) is taken along. Needs root. Plain Node.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { copy, makeDebianRoot } from './debian-root.mjs';
import { findProgram, installPackages, ROOT } from './ensure-packages.mjs';
import { command } from './prepare.mjs';

const RELEASES = ['bookworm', 'trixie', 'sid'];
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

/** Node and npm as a package or an archive of Node lays them out: npm is a directory beside, reached by links. */
function installNode(root) {
  const npm = dirname(dirname(realpathSync(findProgram('npm'))));
  copy(process.execPath, join(root, 'usr/bin/node'));
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

function makeRoot(release, root) {
  makeDebianRoot(release, root);
  installNode(root);
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
  const end = (signal) => child.kill(signal);
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, end);
  const [code, signal] = await once(child, 'exit');
  for (const name of ['SIGINT', 'SIGTERM']) process.off(name, end);
  if (code !== 0) throw new Error(`${line} failed with ${signal ?? `status ${code}`}`);
}

await command('fresh-root', async () => {
  const [release, ...lines] = process.argv.slice(2);
  if (!RELEASES.includes(release) || lines.length === 0)
    throw new Error(`usage: fresh-root.mjs ${RELEASES.join('|')} COMMAND...`);
  if (process.getuid() !== 0) throw new Error('a root directory is made and entered by root only');
  installPackages({ debootstrap: 'debootstrap', git: 'git', unshare: 'util-linux' });
  const directory = mkdtempSync('/var/tmp/engined-fresh-');
  try {
    makeRoot(release, join(directory, 'base'));
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
