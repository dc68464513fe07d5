import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { buildSeccomp, parseSeccompProfile, type SeccompTarget } from './seccomp.js';
import { defaultSeccompProfile } from './seccomp-profile.js';

const DEFAULT = defaultSeccompProfile(true);

const target = (overrides: Partial<SeccompTarget> = {}): SeccompTarget => ({
  architecture: 'amd64',
  kernel: [6, 1],
  capabilities: [],
  ...overrides,
});
const allowed = (name: string, overrides?: Partial<SeccompTarget>): boolean =>
  buildSeccomp(DEFAULT, target(overrides)).syscalls.some(
    ({ names, action, args }) => action === 'SCMP_ACT_ALLOW' && args === undefined && names.includes(name),
  );

test('the default profile opens up with capabilities', () => {
  for (const name of [
    'openat2',
    'futex_waitv',
    'clone',
    'mount',
    'bpf',
    'chroot',
    'io_uring_setup',
    'keyctl',
    'add_key',
    'kexec_load',
    'userfaultfd',
  ]) {
    assert.equal(allowed(name), ['openat2', 'futex_waitv'].includes(name), name);
  }
  assert.ok(allowed('mount', { capabilities: ['CAP_SYS_ADMIN'] }));
  assert.ok(allowed('bpf', { capabilities: ['CAP_BPF'] }));
  assert.ok(allowed('chroot', { capabilities: ['CAP_SYS_CHROOT'] }));
  assert.ok(!allowed('keyctl', { capabilities: ['CAP_SYS_ADMIN'] }));
});

test('clone may make threads but no namespaces, clone3 says it is not there', () => {
  const { syscalls } = buildSeccomp(DEFAULT, target());
  assert.deepEqual(syscalls.find(({ names }) => names.includes('clone'))?.args, [
    { index: 0, value: 0x7e020000, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' },
  ]);
  assert.equal(syscalls.find(({ names }) => names.includes('clone3'))?.errnoRet, 38);
  const s390 = buildSeccomp(DEFAULT, target({ architecture: 's390x' })).syscalls.filter(({ names }) =>
    names.includes('clone'),
  );
  assert.deepEqual(
    s390.map(({ args }) => args?.[0]?.index),
    [1],
  );
});

test('architectures come from the map or from the profile', () => {
  assert.deepEqual(buildSeccomp(DEFAULT, target()).architectures, [
    'SCMP_ARCH_X86_64',
    'SCMP_ARCH_X86',
    'SCMP_ARCH_X32',
  ]);
  assert.deepEqual(buildSeccomp(defaultSeccompProfile(false), target()).architectures, [
    'SCMP_ARCH_X86_64',
    'SCMP_ARCH_X86',
  ]);
  assert.deepEqual(
    buildSeccomp({ defaultAction: 'SCMP_ACT_ALLOW', architectures: ['SCMP_ARCH_X86'] }, target()).architectures,
    ['SCMP_ARCH_X86'],
  );
});

test('conditions on kernel, architecture and capabilities', () => {
  const profile = parseSeccompProfile(
    JSON.stringify({
      defaultAction: 'SCMP_ACT_ERRNO',
      syscalls: [
        { name: 'a', action: 'SCMP_ACT_ALLOW', args: null },
        { names: ['b'], action: 'SCMP_ACT_ALLOW', includes: { minKernel: '6.2' } },
        { names: ['c'], action: 'SCMP_ACT_ALLOW', includes: { minKernel: '5.19', arches: ['amd64'] } },
        { names: ['d'], action: 'SCMP_ACT_ALLOW', excludes: { minKernel: '4.8' } },
        { names: ['e'], action: 'SCMP_ACT_ALLOW', includes: { caps: ['CAP_BPF', 'CAP_KILL'] } },
      ],
    }),
  );
  assert.deepEqual(
    buildSeccomp(profile, target({ capabilities: ['CAP_BPF'] })).syscalls.map(({ names }) => names[0]),
    ['a', 'c'],
  );
});

test('null is absence', () => {
  const profile = parseSeccompProfile(
    '{"defaultAction":"x","defaultErrnoRet":null,"flags":null,"archMap":null,"syscalls":' +
      '[{"names":["a"],"action":"y","errnoRet":null,"args":null,"includes":null,"excludes":{"caps":null}}]}',
  );
  assert.deepEqual(buildSeccomp(profile, target()), {
    defaultAction: 'x',
    syscalls: [{ names: ['a'], action: 'y' }],
  });
});

test('broken profiles are refused', () => {
  for (const [text, message] of [
    ['{', /^Decoding seccomp profile failed: /],
    ['[]', /defaultAction must be a string/],
    ['{"defaultAction":"x","syscalls":{}}', /failed: syscalls must be an array$/],
    ['{"defaultAction":"x","archMap":[3]}', /failed: archMap\[0\] must be an object$/],
    ['{"defaultAction":"x","listenerPath":[]}', /failed: listenerPath must be a string$/],
    [
      '{"defaultAction":"x","architectures":["a"],"archMap":[{"architecture":"b"}]}',
      /both 'architectures' and 'archMap'/,
    ],
    ['{"defaultAction":"x","syscalls":[{"name":"a","names":["b"],"action":"y"}]}', /both 'name' and 'names'/],
    ['{"defaultAction":"x","syscalls":[null]}', /failed: syscalls\[0\] must be an object$/],
    ['{"defaultAction":"x","syscalls":[{"names":["a"]}]}', /failed: syscalls\[0\]\.action must be a string$/],
    ...Object.entries({
      '"names":[3]': /failed: syscalls\[0\]\.names must be an array of strings$/,
      '"includes":[]': /failed: syscalls\[0\]\.includes must be an object$/,
      '"includes":{"caps":"CAP_BPF"}': /failed: syscalls\[0\]\.includes\.caps must be an array of strings$/,
      '"excludes":{"minKernel":5}': /failed: syscalls\[0\]\.excludes\.minKernel must be a string$/,
      '"args":[null]': /failed: syscalls\[0\]\.args\[0\] must be an object$/,
      // As a number of JavaScript it is 18446744069414584000 when it is written again.
      '"args":[{"value":18446744069414584320}]': /args\[0\]\.value must be an integer from 0 to 2\^53 - 1$/,
    }).map(([member, message]) => [`{"defaultAction":"x","syscalls":[{"action":"y",${member}}]}`, message] as const),
  ] as const) {
    assert.throws(
      () => parseSeccompProfile(text),
      (error) => isEngineError(error, 'invalid') && message.test(error.message),
      text,
    );
  }
});
