/**
 * The virtual machines of `npm run test:vm`: each is a disk with Debian 13, a kernel and its initial RAM disk. They are
 * made once and kept in a cache. The kernel is that of Debian 12, because that of Debian 13 has crashed under QEMU's
 * software emulation. One of them has ZFS, whose modules are compiled for that kernel, another one has SELinux instead
 * of AppArmor. Plain Node.
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeDebianRoot } from './debian-root.mjs';
import { findProgram, installPackages, ROOT, run } from './ensure-packages.mjs';

/** The kinds of machines, with the directory of each. */
const MACHINES = {
  plain: join(ROOT, 'node_modules', '.cache', 'test-machine'),
  zfs: join(ROOT, 'node_modules', '.cache', 'test-machine-zfs'),
  selinux: join(ROOT, 'node_modules', '.cache', 'test-machine-selinux'),
};
const RELEASE = 'trixie';
const KERNEL_RELEASE = 'bookworm';
/** Sparse: what is never written takes no place. */
const DISK_SIZE = '8G';
const PACKAGES = [
  ...['systemd-sysv', 'dbus', 'udev', 'kmod', 'apparmor', 'procps', 'iproute2', 'curl'],
  ...['containerd', 'runc', 'iptables', 'nftables', 'xz-utils', 'busybox-static', 'tini', 'initramfs-tools'],
  // The daemon of an ordinary user, and a systemd of the user.
  ...['rootlesskit', 'slirp4netns', 'uidmap', 'passwd', 'dbus-user-session', 'libpam-systemd'],
  // The quickstart needs these, too.
  ...['docker-registry', 'fuse-overlayfs', 'bzip2', 'git', 'libisal2'],
];
/** The disk's driver and its file system are modules; everything else is found once that is mounted. */
const BOOT_MODULES = ['virtio_pci', 'virtio_blk', 'ext4'];

/** Runs what the second disk brings (vdb, or ubdb), and nothing else. Its output goes to the second serial line. */
const TEST_UNIT = `[Unit]
Description=Tests of the container engine

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mount /dev/[uv]*db /srv && exec /bin/sh /srv/scripts/vm-guest.sh'
StandardInput=null
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1

[Install]
WantedBy=multi-user.target
`;

/** This runs in the new root. The newest kernel of the older release comes by its own name, not by "newest". */
const INSTALL = `set -e
mount -t proc proc /proc
sed s/${RELEASE}/${KERNEL_RELEASE}/ /etc/apt/sources.list > /etc/apt/sources.list.d/kernel.list
apt-get -qq update
install='apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends'
$install ${PACKAGES.join(' ')}
printf '%s\\n' ${BOOT_MODULES.join(' ')} >> /etc/initramfs-tools/modules
sed -i s/^MODULES=.*/MODULES=list/ /etc/initramfs-tools/initramfs.conf
kernel=$(apt-cache show linux-image-cloud-amd64/${KERNEL_RELEASE} |
  sed -n 's/^Depends: \\([^ ,]*\\).*/\\1/p' | head -n 1)
$install "$kernel"
apt-get clean
systemctl mask containerd.service docker-registry.service
systemctl enable vm-tests.service
`;

/** This compiles the modules, which takes several minutes, and runs after the other. */
const INSTALL_ZFS = `set -e
mount -t proc proc /proc
sed -i 's/ main$/ main contrib/' /etc/apt/sources.list
apt-get -qq update
kernel=$(ls /lib/modules)
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends \\
  linux-headers-$kernel gcc make zfs-dkms zfsutils-linux zstd
modinfo -k $kernel zfs > /dev/null
systemctl mask systemd-udev-settle.service $(cd /usr/lib/systemd/system && echo zfs-*.service)
apt-get clean
`;

/** Every file gets its label here, where nothing is emulated. systemd loads the policy before it starts anything. */
const INSTALL_SELINUX = `set -e
mount -t proc proc /proc
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends selinux-policy-default
apt-get clean
setfiles -F -e /proc /etc/selinux/default/contexts/files/file_contexts /
`;

/** The scripts that make a machine of each kind. */
const SCRIPTS = { plain: [INSTALL], zfs: [INSTALL, INSTALL_ZFS], selinux: [INSTALL, INSTALL_SELINUX] };

/** Makes a machine of a kind if it is not there. Returns the paths of its parts. Needs root. */
export function ensureMachine(kind) {
  const machine = MACHINES[kind];
  const parts = { disk: 'disk.img', kernel: 'vmlinuz', ramDisk: 'initrd' };
  const paths = Object.fromEntries(Object.entries(parts).map(([part, name]) => [part, join(machine, name)]));
  if (existsSync(machine)) return paths;
  installPackages({ debootstrap: 'debootstrap', unshare: 'util-linux', 'mkfs.ext4': 'e2fsprogs' });
  const fresh = `${machine}.${process.pid}`;
  const root = join(fresh, 'root');
  mkdirSync(root, { recursive: true });
  try {
    makeDebianRoot(RELEASE, root);
    // Its packages start services of their own otherwise.
    const policy = join(root, 'usr/sbin/policy-rc.d');
    writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
    writeFileSync(join(root, 'etc/hostname'), 'vm\n');
    mkdirSync(join(root, 'etc/systemd/system'), { recursive: true });
    writeFileSync(join(root, 'etc/systemd/system/vm-tests.service'), TEST_UNIT);
    for (const script of SCRIPTS[kind])
      run('unshare', ['--mount', '--propagation', 'private', 'chroot', root, 'sh', '-c', script], {
        env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      });
    rmSync(policy);
    // The tests are run by the program that has compiled them.
    copyFileSync(process.execPath, join(root, 'usr/bin/node'));
    for (const [part, prefix] of Object.entries({ kernel: 'vmlinuz-', ramDisk: 'initrd.img-' })) {
      const [name] = readdirSync(join(root, 'boot')).filter((file) => file.startsWith(prefix));
      if (name === undefined) throw new Error(`the new machine has no ${prefix}* in /boot`);
      copyFileSync(join(root, 'boot', name), join(fresh, parts[part]));
    }
    makeDisk(root, join(fresh, parts.disk), DISK_SIZE);
    rmSync(root, { recursive: true });
    renameSync(fresh, machine);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return paths;
}

/** Makes a disk with the files of a directory. */
export function makeDisk(directory, path, size) {
  run(findProgram('mkfs.ext4') ?? 'mkfs.ext4', ['-q', '-F', '-d', directory, path, size]);
}
