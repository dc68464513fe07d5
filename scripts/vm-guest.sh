# Runs in the virtual machine of `npm run test:vm`: installs the package of the daemon, runs the tests of
# test/vm whose names have one of the parts, says how they ended, and switches the machine off.
cd /srv
. ./environment
# The link to the machine that runs this one, where there is one (scripts/native-machine.mjs).
if [ -n "$ADDRESS" ]; then
  ip address add "$ADDRESS/24" dev vec0
  ip link set vec0 up
  # A kernel that is a program may miss that a disk has answered, when the disk answers all its requests at once; it
  # finds the answers with the next one of any disk. So the second disk is asked for something new each second.
  perl -e 'open(D, "<", "/dev/ubdb") or die; for (;; sleep 1) { sysread(D, $b, 4096); sysseek(D, 520192, 1) or die }' &
fi
dpkg --force-unsafe-io -i package/engined_1.0_*.deb
systemctl show -p Id,ActiveState,UnitFileState engined.socket engined.service > package/installed
# As docs/install.md says for a systemd of this age.
mkdir -p /etc/systemd/system/engined.service.d
cp /usr/share/doc/engined/examples/engined.service.d/notify-reload.conf /etc/systemd/system/engined.service.d/
systemctl daemon-reload
ln -s /srv/node_modules/.cache/docker-cli/usr/bin/docker /usr/local/bin/docker
tests=$(ls dist/test/vm/*.test.js)
[ -s parts ] && tests=$(printf '%s\n' $tests | grep -F -f parts)
# A policy of SELinux does not let the programs of scripts execute code that they have made.
jit=
[ -e /sys/fs/selinux/enforce ] && jit=--jitless
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DOCKER_HOST=unix:///run/engine.sock \
  env $(cat environment) node $jit --test --test-concurrency=1 --test-reporter=spec $tests
echo "tests ended with status $?"
systemctl poweroff
