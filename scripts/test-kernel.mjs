/**
 * The kernel of `npm run test:vm -- --native`: Linux as a program of this machine (User Mode Linux), whose processes
 * run at the speed of the machine's own, without virtualization. Debian's package of it lacks the families of nftables,
 * so it is compiled from Debian's sources with just what the tests need, once, and kept in a cache. Plain Node.
 */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { makeDebianRoot } from './debian-root.mjs';
import { installPackages, ROOT, run } from './ensure-packages.mjs';

/** The kinds of kernels, with the directory of each. */
const KERNELS = {
  plain: join(ROOT, 'node_modules', '.cache', 'test-kernel'),
  zfs: join(ROOT, 'node_modules', '.cache', 'test-kernel-zfs'),
};
const OPTIONS = readFileSync(join(ROOT, 'scripts', 'test-kernel.config'), 'utf8');
/** Options of a kernel that OpenZFS wants. */
const OPTIONS_ZFS = ['CRYPTO_DEFLATE', 'EFI_PARTITION', 'PARTITION_ADVANCED', 'ZLIB_DEFLATE', 'ZLIB_INFLATE'];
const RELEASE = 'trixie';
/** Older kernels stop every process at each system call with ptrace, which takes eight times as long. */
const BACKPORTS = 'trixie-backports';
/** Programs of these scripts come from the root of a release, and the kernel, linked statically, runs on any. */
const INSTALL = `set -e
mount -t proc proc /proc
sed 's/${RELEASE}/${BACKPORTS}/; s/ main$/ main contrib/' /etc/apt/sources.list > /etc/apt/sources.list.d/sources.list
apt-get -qq update
install='apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends'
$install gcc libc6-dev make flex bison bc xz-utils perl
export ARCH=um
configure() {
  make -s KCONFIG_ALLCONFIG=/options allnoconfig
  grep '^CONFIG' /options | while read -r option; do
    grep -qxF "$option" .config || echo "the sources have no $option" >&2
  done
}
`;
const CONFIGURE = `cd /usr/src
tar -xJf linux-source-*.tar.xz
cd linux-source-*/
# The link to this machine may look up names of hosts, but not where it is an interface, so a static program will do.
sed -i '/select MAY_HAVE_RUNTIME_DEPS/d' arch/um/drivers/Kconfig
configure
`;
const SOURCES_PLAIN = `$install linux-source/${BACKPORTS}
`;
/** The newest sources of Linux that OpenZFS knows, which become one with its own. */
const SOURCES_ZFS = `cd /tmp
apt-get -qq download zfs-dkms/${BACKPORTS}
dpkg -x zfs-dkms_*.deb zfs
mv zfs/usr/src/zfs-* /usr/src/zfs
newest=$(sed -n 's/^Linux-Maximum: *//p' /usr/src/zfs/META)
version=$(apt-cache pkgnames linux-source- | sed -n 's/^linux-source-\\([0-9.]*\\)$/\\1/p' | while read -r one; do
  dpkg --compare-versions "$one" le "$newest" && echo "$one"
done | sort -V | tail -n 1)
$install "linux-source-$version"
`;
const ADD_ZFS = `linux=$PWD
make -s -j "$(nproc)" prepare scripts
cd ../zfs
./configure -q --enable-linux-builtin --with-config=kernel --with-linux="$linux" --with-linux-obj="$linux"
./copy-builtin "$linux"
cd "$linux"
# What is compiled from the package of modules lacks the file that a release makes of its own name.
echo "#define ZFS_META_GITREV \\"$(sed -n 's/^Version: *//p' ../zfs/META)\\"" > include/zfs/zfs_gitrev.h
echo CONFIG_ZFS=y >> /options
configure
`;
const COMPILE = `make -s -j "$(nproc)" linux
`;
/** The scripts that make a kernel of each kind, one after the other. */
const SCRIPTS = {
  plain: [INSTALL, SOURCES_PLAIN, CONFIGURE, COMPILE],
  zfs: [INSTALL, SOURCES_ZFS, CONFIGURE, ADD_ZFS, COMPILE],
};

function optionsOf(kind) {
  return kind === 'zfs' ? `${OPTIONS}${OPTIONS_ZFS.map((name) => `CONFIG_${name}=y\n`).join('')}` : OPTIONS;
}

/** Whether there is a kernel with the options that are wanted now. */
function isThere(kind) {
  const options = join(KERNELS[kind], 'options');
  return existsSync(options) && readFileSync(options, 'utf8') === optionsOf(kind);
}

/** Makes the kernel of a kind of machine if it is not there, in some minutes. Returns its path. Needs root. */
export function ensureKernel(kind) {
  const kernel = join(KERNELS[kind], 'linux');
  if (isThere(kind)) return kernel;
  installPackages({ debootstrap: 'debootstrap', unshare: 'util-linux' });
  const fresh = `${KERNELS[kind]}.${process.pid}`;
  const root = join(fresh, 'root');
  mkdirSync(root, { recursive: true });
  try {
    makeDebianRoot(RELEASE, root);
    writeFileSync(join(root, 'options'), optionsOf(kind));
    console.error('compiling a kernel for User Mode Linux, once');
    const script = ['--mount', '--propagation', 'private', 'chroot', root, 'sh', '-c', SCRIPTS[kind].join('')];
    run('unshare', script, { env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } });
    const sources = readdirSync(join(root, 'usr/src')).find((name) => existsSync(join(root, 'usr/src', name, 'linux')));
    copyFileSync(join(root, 'usr/src', sources, 'linux'), join(fresh, 'linux'));
    writeFileSync(join(fresh, 'options'), optionsOf(kind));
    rmSync(root, { recursive: true });
    rmSync(KERNELS[kind], { recursive: true, force: true });
    renameSync(fresh, KERNELS[kind]);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return kernel;
}
