/** The default profile, compiled by the real parser, and when it is loaded. What it refuses is tested in test/vm. */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { runProgram } from '../../sys/process/spawn.js';
import { AppArmor, type AppArmorHost } from './apparmor.js';
import { DEFAULT_PROFILE, defaultProfile } from './profile.js';

/** A kernel and a parser: a profile that the parser has taken is in the kernel's list. */
const kernel = { loaded: new Map<string, string>(), mark: undefined as string | undefined, loads: 0, exitCode: 0 };
const version = { parser: '3.0.8' };
const warnings: string[] = [];
const log = {
  debug: () => undefined,
  info: () => undefined,
  error: () => undefined,
  warn: (_fields: object, message: string) => void warnings.push(message),
  child: () => log,
};

beforeEach(() => {
  Object.assign(kernel, { loaded: new Map([['lsb_release', '']]), mark: undefined, loads: 0, exitCode: 0 });
  version.parser = '3.0.8';
  warnings.length = 0;
});

const host = (hasParser = true): AppArmorHost => ({
  loaded: async () => [...kernel.loaded.keys()].map((name) => `${name} (enforce)\n`).join(''),
  ownLabel: async () => 'unconfined\n',
  hasParser,
  run: async (_program, args, input) => {
    if (args[0] === '--version')
      return { stdout: `AppArmor parser version ${version.parser}\nCopyright`, stderr: '', exitCode: 0 };
    kernel.loads += 1;
    if (kernel.exitCode === 0) kernel.loaded.set(DEFAULT_PROFILE, input ?? '');
    return { stdout: '', stderr: 'no room\n', exitCode: kernel.exitCode };
  },
});

const open = async (hasParser = true): Promise<AppArmor> => {
  const opened = await AppArmor.open(
    { read: async () => kernel.mark, write: async (text) => void (kernel.mark = text) },
    log,
    host(hasParser),
  );
  assert.ok(opened);
  return opened;
};

test('the parser of this host compiles the profile, with and without a profile of the daemon', async () => {
  for (const daemonLabel of ['unconfined', '/usr/sbin/engined', 'a//&b']) {
    const text = defaultProfile({ parser: [3, 0], daemonLabel });
    const compiled = await runProgram('apparmor_parser', ['--skip-kernel-load', '--skip-cache', '--names'], text);
    assert.deepEqual([compiled.stdout.trim(), compiled.exitCode], [DEFAULT_PROFILE, 0], compiled.stderr);
    const binary = await runProgram('apparmor_parser', ['--skip-kernel-load', '--skip-cache', '--stdout'], text);
    assert.equal(binary.exitCode, 0, binary.stderr);
    assert.equal(text.includes('peer=/usr/sbin/engined'), daemonLabel === '/usr/sbin/engined');
    assert.ok(!text.includes('&'));
  }
});

test('a parser gets only rules that it knows', () => {
  const text = (major: number, minor: number): string =>
    defaultProfile({ parser: [major, minor], daemonLabel: 'unconfined' });
  assert.doesNotMatch(text(2, 8), /signal|ptrace|unix|userns/);
  assert.match(text(2, 13), /signal.*\n(.*\n)*.*ptrace/);
  assert.doesNotMatch(text(3, 1), /userns|io_uring/);
  assert.match(text(4, 1), /userns,/);
  assert.match(text(10, 0), /userns,/);
});

test('the profile is loaded when it is missing, and once', async () => {
  const appArmor = await open();
  await appArmor.prepare();
  assert.match(kernel.loaded.get(DEFAULT_PROFILE) ?? '', /^profile engine-default /);
  await (await open()).prepare();
  await appArmor.require(DEFAULT_PROFILE);
  assert.equal(kernel.loads, 1);
});

test('a profile that the kernel has lost is loaded for the next container, once for all starts', async () => {
  const appArmor = await open();
  await appArmor.prepare();
  kernel.loaded.delete(DEFAULT_PROFILE);
  await Promise.all([appArmor.require(DEFAULT_PROFILE), appArmor.require(DEFAULT_PROFILE)]);
  assert.equal(kernel.loads, 2);
});

test("the text is loaded again after an upgrade or a crash while it was loaded; an operator's stays", async () => {
  await (await open()).prepare();
  version.parser = '4.1.0';
  await (await open()).prepare();
  assert.equal(kernel.loads, 2);
  assert.match(kernel.loaded.get(DEFAULT_PROFILE) ?? '', /userns,/);
  kernel.mark = '';
  await (await open()).prepare();
  assert.equal(kernel.loads, 3);
  kernel.mark = undefined;
  kernel.loaded.set(DEFAULT_PROFILE, 'of the operator');
  await (await open()).prepare();
  assert.equal(kernel.loaded.get(DEFAULT_PROFILE), 'of the operator');
});

test('containers have the profile that they ask for, and privileged ones none', async () => {
  const appArmor = await open();
  const of = (Privileged: boolean, ...SecurityOpt: string[]): string => appArmor.profileOf({ Privileged, SecurityOpt });
  assert.equal(of(false), DEFAULT_PROFILE);
  assert.equal(of(false, 'apparmor='), DEFAULT_PROFILE);
  assert.equal(of(false, 'apparmor=mine'), 'mine');
  assert.equal(of(false, 'apparmor:unconfined'), 'unconfined');
  assert.equal(of(true, 'apparmor=mine'), 'unconfined');
});

test('a profile that is not loaded is refused by its name', async () => {
  const appArmor = await open();
  await appArmor.require('lsb_release');
  await appArmor.require('unconfined');
  await assert.rejects(appArmor.require('lsb_rel'), {
    kind: 'invalid',
    message: 'unable to apply apparmor profile: apparmor failed to apply profile: "lsb_rel" is not loaded',
  });
});

test('when the default profile cannot be loaded, no container starts under it', async () => {
  kernel.exitCode = 1;
  const appArmor = await open();
  const refusal = {
    kind: 'internal',
    message:
      'AppArmor enabled on system but the engine-default profile could not be loaded: ' +
      'apparmor_parser ended with 1: no room',
  };
  await assert.rejects(appArmor.prepare(), refusal);
  await assert.rejects(appArmor.require(DEFAULT_PROFILE), refusal);
  assert.equal(appArmor.isInEffect, false);
  kernel.exitCode = 0;
  await appArmor.require(DEFAULT_PROFILE);
  assert.equal(appArmor.isInEffect, true);
});

test('without a parser only a profile that is there already confines containers', async () => {
  assert.equal(
    await AppArmor.open({ read: async () => undefined, write: async () => undefined }, log, host(false)),
    undefined,
  );
  assert.match(warnings[0] ?? '', /^containers are not confined by AppArmor: apparmor_parser is not installed/);
  kernel.loaded.set(DEFAULT_PROFILE, 'of the operator');
  const appArmor = await open(false);
  await appArmor.prepare();
  await appArmor.require(DEFAULT_PROFILE);
  assert.equal(kernel.loads, 0);
});
