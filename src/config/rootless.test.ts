import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HOST, load, refused } from '../../test/support/configurations.js';
import { userDirectories } from './rootless.js';

const SESSION = { HOME: '/home/u', XDG_RUNTIME_DIR: '/run/user/7' };

test('an ordinary user has the places of the XDG specification, unless options name others', () => {
  assert.deepEqual(userDirectories({ ...SESSION, XDG_CONFIG_HOME: 'relative', XDG_DATA_HOME: '/data' }), {
    config: '/home/u/.config',
    data: '/data',
    runtime: '/run/user/7',
  });
  for (const [content, argv] of [
    [{}, ['--rootless']],
    [{ rootless: true }, []],
  ] as const) {
    const { config } = load(content, argv, SESSION);
    assert.equal(config.dataRoot, '/home/u/.local/share/engine');
    assert.equal(config.execRoot, '/run/user/7/engine');
    assert.equal(config.pidfile, '/run/user/7/engine.pid');
    assert.deepEqual(config.hosts, ['unix:///run/user/7/engine.sock']);
    assert.equal(config.certsDir, '/home/u/.config/engine/certs.d');
    assert.deepEqual([config.group, config.groupNamed], ['0', false]);
  }
  const { config } = load({ 'data-root': '/elsewhere', hosts: ['unix:///a'] }, ['--rootless'], SESSION);
  assert.deepEqual([config.dataRoot, config.hosts], ['/elsewhere', ['unix:///a']]);
  assert.equal(load({}, [], SESSION).config.dataRoot, '/var/lib/engine');
});

test('groups of an ordinary user are made by the manager of the user, or not at all', () => {
  const driverOn = (host: object): readonly string[] => {
    const { config } = load({}, ['--rootless'], SESSION, { ...HOST, ...host });
    return [config.cgroupDriver, config.cgroupParent];
  };
  assert.deepEqual(driverOn({}), ['none', '']);
  assert.deepEqual(driverOn({ cgroupVersion: 2 }), ['none', '']);
  assert.deepEqual(driverOn({ userManager: true }), ['none', '']);
  assert.deepEqual(driverOn({ cgroupVersion: 2, userManager: true }), ['systemd', 'user.slice']);
  const { config } = load({ 'cgroup-parent': 'my.slice' }, ['--rootless'], SESSION, {
    ...HOST,
    cgroupVersion: 2,
    userManager: true,
  });
  assert.equal(config.cgroupParent, 'my.slice');
});

test('what a user cannot have is refused', () => {
  const said = (content: object, environment: Record<string, string> = SESSION): string =>
    refused(() => load({ rootless: true, ...content }, [], environment));
  assert.match(said({}, { HOME: '/home/u' }), /rootless: XDG_RUNTIME_DIR is not set/);
  assert.match(said({ 'userns-remap': 'default' }), /userns-remap: users of a rootless daemon are those/);
  assert.match(said({ 'selinux-enabled': true }), /selinux-enabled: a rootless daemon may not label files/);
  assert.match(said({ 'cpu-rt-runtime': 5 }), /cpu-rt-runtime: a rootless daemon may not share out real time/);
  const driver = (name: string): object => ({ 'exec-opts': [`native.cgroupdriver=${name}`] });
  assert.match(said(driver('cgroupfs')), /native.cgroupdriver=cgroupfs: a rootless daemon may not/);
  assert.match(said(driver('systemd')), /native.cgroupdriver=systemd: a rootless daemon needs cgroup version 2/);
  assert.match(
    refused(() => load({}, [], { ...SESSION, ROOTLESSKIT_STATE_DIR: '/run/user/7/kit' })),
    /rootless: the daemon was started by RootlessKit: give it --rootless/,
  );
  // The variable alone does not make a user of root.
  const machine = { ...HOST, isInitialUserNamespace: true };
  load({}, [], { ROOTLESSKIT_STATE_DIR: '/run/user/7/kit' }, machine);
  assert.match(
    refused(() => load({}, ['--rootless'], SESSION, machine)),
    /must run in a user namespace of its own, .*: start engined-rootless as an ordinary user/,
  );
});
