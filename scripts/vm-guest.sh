# Runs in the virtual machine of `npm run test:vm`: installs the daemon as docs/sockets-and-tls.md says, runs the tests
# of test/vm whose names have one of the parts, says how they ended, and switches the machine off.
cd /srv
groupadd --system engine
ln -s /srv/dist/bundle/main.js /usr/local/bin/engined
ln -s /srv/node_modules/.cache/docker-cli/usr/bin/docker /usr/local/bin/docker
cp -r packaging/systemd/engined.* /etc/systemd/system/
ln -s /srv/packaging/engined-rootless /usr/local/bin/engined-rootless
cp packaging/systemd/user/engined.service /etc/systemd/user/
systemctl daemon-reload
tests=$(ls dist/test/vm/*.test.js)
[ -s parts ] && tests=$(printf '%s\n' $tests | grep -F -f parts)
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DOCKER_HOST=unix:///run/engine.sock \
  node --test --test-concurrency=1 --test-reporter=spec $tests
echo "tests ended with status $?"
systemctl poweroff
