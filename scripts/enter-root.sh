#!/bin/sh
# enter-root.sh ROOT TEMP PROGRAM...: runs a program that takes the directory ROOT for its machine. Run it in a mount
# namespace of its own. The program shares /sys, /dev and the directory TEMP with the machine, TEMP under the same path.
# The root is entered by pivot_root and not by chroot, because a thread that enters another mount namespace gets that
# namespace's root, which must be this directory too.
set -e
root=$1 temp=$2
shift 2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p "./$temp" old
mount --rbind "$temp" "./$temp"
# busybox has it wherever the tests run; Debian moves the other one from package to package.
busybox pivot_root . old
cd /
umount -l /old
exec "$@"
