/**
 * The kernel of `npm run test:vm -- --native`: Linux as a program of this machine (User Mode Linux), whose processes
 * run at the speed of the machine's own, without virtualization. Debian's package of it lacks the families of nftables,
 * so it is compiled from Debian's sources with just what the tests need, once, and kept in a cache. Plain Node.
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { makeDebianRoot } from './debian-root.mjs';
import { installPackages, ROOT, run } from './ensure-packages.mjs';

const CACHE = join(ROOT, 'node_modules', '.cache', 'test-kernel');
const OPTIONS = join(ROOT, 'scripts', 'test-kernel.config');
const RELEASE = 'trixie';
/** Older kernels stop every process at each system call with ptrace, which takes eight times as long. */
const SOURCES = 'trixie-backports';
/** Programs of this script come from the root of a release, and the kernel, linked statically, runs on any. */
const COMPILE = `set -e
mount -t proc proc /proc
sed s/${RELEASE}/${SOURCES}/ /etc/apt/sources.list > /etc/apt/sources.list.d/sources.list
apt-get -qq update
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends \\
  gcc libc6-dev make flex bison bc xz-utils perl linux-source/${SOURCES}
cd /usr/src
tar -xJf linux-source-*.tar.xz
cd linux-source-*/
export ARCH=um
# The link to this machine may look up names of hosts, but not where it is an interface, so a static program will do.
sed -i '/select MAY_HAVE_RUNTIME_DEPS/d' arch/um/drivers/Kconfig
make -s KCONFIG_ALLCONFIG=/options allnoconfig
grep '^CONFIG' /options | while read -r option; do
  grep -qxF "$option" .config || echo "the sources have no $option" >&2
done
make -s -j "$(nproc)" linux
`;

/** Whether there is a kernel with the options that are wanted now. */
function isThere() {
  const options = join(CACHE, 'options');
  return existsSync(options) && readFileSync(options).equals(readFileSync(OPTIONS));
}

/** Makes the kernel if it is not there, which takes some minutes. Returns its path. Needs root. */
export function ensureKernel() {
  const kernel = join(CACHE, 'linux');
  if (isThere()) return kernel;
  installPackages({ debootstrap: 'debootstrap', unshare: 'util-linux' });
  const fresh = `${CACHE}.${process.pid}`;
  const root = join(fresh, 'root');
  mkdirSync(root, { recursive: true });
  try {
    makeDebianRoot(RELEASE, root);
    copyFileSync(OPTIONS, join(root, 'options'));
    console.error('compiling a kernel for User Mode Linux, once');
    const script = ['--mount', '--propagation', 'private', 'chroot', root, 'sh', '-c', COMPILE];
    run('unshare', script, { env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } });
    const [directory] = readdirSync(join(root, 'usr/src'), { withFileTypes: true }).filter((one) => one.isDirectory());
    copyFileSync(join(root, 'usr/src', directory.name, 'linux'), join(fresh, 'linux'));
    copyFileSync(join(root, 'options'), join(fresh, 'options'));
    rmSync(root, { recursive: true });
    rmSync(CACHE, { recursive: true, force: true });
    renameSync(fresh, CACHE);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return kernel;
}
