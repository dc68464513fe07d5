/** Networks on a link of the host (macvlan, ipvlan): containers as neighbours of other machines. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { runInside } from '../support/host-networks.js';
import { openOutside, type Outside } from '../support/outside.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

const directory = mkdtempSync(join(tmpdir(), 'parent-'));
const cleanup = new Cleanup();
let image: string;
let engine: Engine;
let lan: Outside;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  lan = openOutside(directory, { here: [], there: ['10.215.0.1/24', '2001:db8:215::1/64', '10.215.1.1/24'] });
  cleanup.add(async () => lan.remove());
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const run = (name: string, ...options: readonly string[]): Promise<string> =>
  engineOk(engine, ['run', '-d', '--name', name, ...options, image, 'sleep', '600']);
const inside = (name: string, ...command: readonly string[]): Promise<string> =>
  engineOk(engine, ['exec', name, ...command]);

test('macvlan: containers are on the link of the host with addresses, names and a way out of their own', async () => {
  const parent = `parent=${lan.link}`;
  await engineOk(engine, [
    'network',
    'create',
    '-d',
    'macvlan',
    '-o',
    parent,
    '--ipv6',
    '--subnet',
    '10.215.0.0/24',
    '--gateway',
    '10.215.0.1',
    '--ip-range',
    '10.215.0.128/25',
    '--aux-address',
    'router=10.215.0.128',
    '--subnet',
    '2001:db8:215::/64',
    '--gateway',
    '2001:db8:215::1',
    'lan',
  ]);
  await run('one', '--network', 'lan');
  await run('two', '--network', 'lan', '--ip', '10.215.0.40', '-p', '8080:80', '--expose', '81');
  assert.match(await inside('one', 'ip', '-o', '-4', 'addr', 'show', 'eth0'), /10\.215\.0\.129\/24/);
  assert.match(await inside('one', 'ip', 'route'), /default via 10\.215\.0\.1 /);
  for (const address of ['10.215.0.1', 'two', '2001:db8:215::1'])
    assert.match(await inside('one', 'ping', '-c', '2', '-W', '2', address), /[12] packets received/, address);
  assert.match(runInside(lan.path, 'busybox', 'ping', '-c', '2', '-W', '2', '10.215.0.40'), /[12] packets received/);
  // Nothing is published: whoever is on the link is there already.
  assert.equal(await engineOk(engine, ['port', 'two']), '');
  assert.equal(await engineOk(engine, ['inspect', '-f', '{{len .NetworkSettings.Ports}}', 'two']), '0');
  assert.equal(await engineOk(engine, ['ps', '--filter', 'name=two', '--format', '{{.Ports}}']), '');
  assert.match(
    (await attempt(engine, ['run', '--rm', '--network', 'lan', '--ip', '10.215.0.40', image, 'true'])).stderr,
    /Address already in use/,
  );
  if (engine.name === 'engined') {
    await engine.stop('SIGKILL');
    await engine.start();
    await run('three', '--network', 'lan');
    assert.match(await inside('three', 'ping', '-c', '2', '-W', '2', 'one'), /[12] packets received/);
    await engineOk(engine, ['rm', '-f', 'three']);
  }
  await engineOk(engine, ['network', 'disconnect', 'lan', 'one']);
  assert.doesNotMatch(await inside('one', 'ip', '-o', 'link'), /eth0/);
  await engineOk(engine, ['rm', '-f', 'one', 'two']);
  await engineOk(engine, ['network', 'rm', 'lan']);
  assert.match(
    execFileSync('ip', ['-o', 'link', 'show', lan.link], { encoding: 'utf8' }),
    new RegExp(lan.link),
    'the link of the host stays',
  );
});

test('macvlan: several subnets of a family', async () => {
  await engineOk(engine, [
    'network',
    'create',
    '-d',
    'macvlan',
    '-o',
    `parent=${lan.link}`,
    '--subnet',
    '10.215.0.0/24',
    '--subnet',
    '10.215.1.0/24',
    '--gateway',
    '10.215.1.1',
    'wide',
  ]);
  await run('far', '--network', 'wide', '--ip', '10.215.1.20');
  assert.match(await inside('far', 'ip', 'route'), /default via 10\.215\.1\.1 /);
  await run('near', '--network', 'wide');
  assert.match(await inside('near', 'ip', '-o', '-4', 'addr', 'show', 'eth0'), /10\.215\.[01]\./);
  await engineOk(engine, ['rm', '-f', 'far', 'near']);
  await engineOk(engine, ['network', 'rm', 'wide']);
});

test('what the kernel has no links for is said, and nothing is left', async () => {
  for (const [driver, options] of [
    ['macvlan', []],
    ['ipvlan', []],
    ['macvlan', ['-o', `parent=${lan.link}.7`]],
  ] as const) {
    const links = execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' });
    const made = await attempt(engine, [
      'network',
      'create',
      '-d',
      driver,
      '--subnet',
      '10.215.2.0/24',
      ...options,
      'isolated',
    ]);
    if (made.status === 0) {
      await engineOk(engine, ['run', '--rm', '--network', 'isolated', image, 'ip', 'addr', 'show', 'eth0']);
      await engineOk(engine, ['network', 'rm', 'isolated']);
    } else assert.match(made.stderr, /operation not supported/);
    assert.equal(execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' }), links);
    assert.doesNotMatch(await engineOk(engine, ['network', 'ls']), /isolated/);
  }
});

test('ipvlan: containers share the MAC address of the link; in layer 3 they leave without a gateway', async (t) => {
  const made = await attempt(engine, [
    'network',
    'create',
    '-d',
    'ipvlan',
    '-o',
    `parent=${lan.link}`,
    '-o',
    'ipvlan_mode=l3',
    '--subnet',
    '10.215.3.0/24',
    'routed',
  ]);
  const first =
    made.status === 0
      ? await attempt(engine, ['run', '-d', '--name', 'l3', '--network', 'routed', image, 'sleep', '600'])
      : made;
  if (first.status !== 0) {
    assert.match(first.stderr, /operation not supported/);
    await attempt(engine, ['rm', '-f', 'l3']);
    await attempt(engine, ['network', 'rm', 'routed']);
    return t.skip('this kernel has no ipvlan');
  }
  assert.match(await inside('l3', 'ip', 'route'), /default dev eth0/);
  await engineOk(engine, ['rm', '-f', 'l3']);
  await engineOk(engine, ['network', 'rm', 'routed']);
});
