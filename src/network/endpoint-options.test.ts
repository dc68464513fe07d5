import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endpointOptionProblems, linkParameters, wantedLinkName } from './endpoint-options.js';

const SYSCTLS = 'com.docker.network.endpoint.sysctls';
const NAME = 'com.docker.network.endpoint.ifname';

test('parameters of a link come in the order in which they are written, under either name of the option', () => {
  const wanted = [
    { directory: 'ipv4/conf', name: 'log_martians', value: '1' },
    { directory: 'ipv6/conf', name: 'accept_ra', value: '2' },
  ];
  const text = 'net.ipv4.conf.IFNAME.log_martians=1,net.ipv6.conf.ifname.accept_ra=2';
  assert.deepEqual(linkParameters({ [SYSCTLS]: text }), wanted);
  assert.deepEqual(linkParameters({ 'com.engine.network.endpoint.sysctls': text }), wanted);
  assert.deepEqual(linkParameters({ other: text }), []);
  assert.equal(wantedLinkName({ 'com.engine.network.endpoint.ifname': 'lan0' }), 'lan0');
  assert.equal(wantedLinkName({ [NAME]: '' }), undefined);
});

test('what is no parameter of a link is told, every one', () => {
  for (const bad of [
    'net.ipv4.conf.eth0.forwarding=1',
    'net.ipv4.conf.IFNAME=1',
    'kernel.ipv4.conf.IFNAME.x=1',
    'net.core.conf.IFNAME.x=1',
    'net.ipv4.conf.IFNAME.../../core=1',
    'net.ipv4.conf/../x.IFNAME.y=1',
    '',
  ]) {
    assert.match(
      endpointOptionProblems({ [SYSCTLS]: bad }).join(),
      new RegExp("^unrecognised network interface sysctl '.*'; represent 'net.X.Y.ethN.Z=V' as 'net.X.Y.IFNAME.Z=V'"),
      bad,
    );
    assert.deepEqual(linkParameters({ [SYSCTLS]: bad }), []);
  }
  assert.equal(endpointOptionProblems({ [SYSCTLS]: 'a,net.ipv4.conf.IFNAME.forwarding=1,b' }).length, 2);
  assert.deepEqual(endpointOptionProblems({ [SYSCTLS]: 'net.ipv4.conf.IFNAME.forwarding' }), [
    "expected sysctl 'net.ipv4.conf.IFNAME.forwarding' to have format name=value",
  ]);
});

test('names of links are those that the kernel takes', () => {
  for (const good of ['eth0', 'lan-1.5', 'wan_0', 'a'.repeat(15)])
    assert.deepEqual(endpointOptionProblems({ [NAME]: good }), [], good);
  for (const bad of ['lo', '.', '..', 'a/b', 'a:b', 'a b', 'a'.repeat(16), 'ä'])
    assert.equal(endpointOptionProblems({ [NAME]: bad }).length, 1, bad);
});
