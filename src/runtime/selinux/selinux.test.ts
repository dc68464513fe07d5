/** Labels of containers, from the contexts of a policy; a kernel that enforces them is not needed here. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freeLevel } from './categories.js';
import { optionsOf, parseLabelOptions } from './label-options.js';
import { containerContexts, isValid } from './policy.js';
import { SeLinux, sharedLabel } from './selinux.js';

const CONTEXTS = `
# of the policy
process = "system_u:system_r:container_t:s0"
content = "system_u:object_r:virt_var_lib_t:s0"
file = "system_u:object_r:container_file_t:s0"
`;
/** A policy that knows every type but this one. */
const UNKNOWN = 'nobody_t';
const make = (text = CONTEXTS): SeLinux => {
  const contexts = containerContexts(text);
  assert.ok(contexts);
  return new SeLinux({ ...contexts, isValid: (label) => !label.includes(UNKNOWN) });
};
const plain = (...SecurityOpt: string[]) => ({ Privileged: false, SecurityOpt });

test('a container has the types of the policy, and a pair of categories of its own for processes and files', () => {
  const seLinux = make();
  const levels = new Set<string>();
  for (let index = 0; index < 2000; index++) {
    const { processLabel, mountLabel } = seLinux.take(`c${index}`, plain());
    const [, level = '', low = '', high = ''] =
      /^system_u:system_r:container_t:(s0:c(\d+),c(\d+))$/.exec(processLabel) ?? [];
    assert.ok(Number(low) < Number(high) && Number(high) < 1024, processLabel);
    assert.equal(mountLabel, `system_u:object_r:container_file_t:${level}`);
    levels.add(level);
  }
  assert.equal(levels.size, 2000);
});

/** A number for each pair of categories. */
function pairOf(level: string): number {
  const comma = level.indexOf(',');
  return Number(level.slice(level.indexOf('c') + 1, comma)) * 1024 + Number(level.slice(comma + 2));
}

test('every pair is found, each once, and a free one is used again', () => {
  // A set of half a million texts would take most of the time.
  const used = new Uint8Array(1024 * 1024);
  const isUsed = (level: string): boolean => used[pairOf(level)] === 1;
  let found = 0;
  // Each search begins where the last one ended, so that this takes no time.
  for (let pair = 0; pair < 523_775; pair++) {
    const level = pairOf(freeLevel(isUsed, pair));
    found += used[level] === 0 ? 1 : 0;
    used[level] = 1;
  }
  assert.equal(found, 523_775);
  assert.equal(used[pairOf('s0:c1022,c1023')], 0, 'this one is for files of containers without labels');
  assert.throws(() => freeLevel(isUsed), /all pairs of SELinux categories are in use/);
  used[pairOf('s0:c3,c700')] = 0;
  assert.equal(freeLevel(isUsed), 's0:c3,c700');
});

test('labels live as long as their container, over starts of the daemon', () => {
  const before = make();
  const labels = before.take('a', plain());
  assert.deepEqual(before.take('a', plain('label=type:other_t')), labels, 'a container keeps its labels');
  const after = make();
  after.hold('a', labels);
  assert.deepEqual(after.take('a', plain()), labels);
  assert.equal(after.mountLabelOf('a'), labels.mountLabel);
  after.release('a');
  after.release('a');
  assert.equal(after.mountLabelOf('a'), undefined);
});

test('containers that share a level hold it until the last of them is gone; then it is used again', () => {
  const contexts = containerContexts(CONTEXTS);
  assert.ok(contexts);
  const levels = ['s0:c0,c1', 's0:c0,c2', 's0:c0,c3'];
  const seLinux = new SeLinux(
    { ...contexts, isValid: () => true },
    (isUsed) => levels.find((level) => !isUsed(level)) ?? '',
  );
  const { processLabel } = seLinux.take('donor', plain());
  const joined = seLinux.take('joined', plain(...optionsOf(processLabel)));
  assert.equal(joined.processLabel, processLabel);
  assert.equal(joined.mountLabel, seLinux.mountLabelOf('donor'));
  const levelOf = (id: string): string => seLinux.take(id, plain()).processLabel.split(':').slice(3).join(':');
  assert.equal(levelOf('second'), levels[1]);
  seLinux.release('donor');
  assert.equal(levelOf('third'), levels[2], 'the joined container still has the first one');
  seLinux.release('joined');
  assert.equal(levelOf('fourth'), levels[0]);
});

test('options change parts of the labels', () => {
  const seLinux = make();
  const given = ['label=user:u', 'label:role:r', 'label=type:t', 'label=level:s0:c1,c2', 'label=filetype:f'];
  assert.deepEqual(seLinux.take('a', plain(...given)), {
    processLabel: 'u:r:t:s0:c1,c2',
    mountLabel: 'u:object_r:f:s0:c1,c2',
  });
  assert.deepEqual(seLinux.take('b', plain('label=disable')), {
    processLabel: '',
    mountLabel: 'system_u:object_r:container_file_t:s0:c1022,c1023',
  });
  assert.equal(seLinux.take('c', { Privileged: true, SecurityOpt: ['label=type:t'] }).processLabel, '');
  assert.equal(parseLabelOptions(['label=nested', 'apparmor=x']).isNested, true);
});

test('unknown options and labels are refused, and hold nothing', () => {
  const seLinux = make();
  for (const option of ['label=', 'label=x', 'label=type', 'label=type:', 'label=colour:red', 'label=disable:yes'])
    assert.throws(() => seLinux.take('a', plain(option)), { kind: 'invalid', message: /^bad label option "/ });
  assert.throws(() => seLinux.take('a', plain(`label=type:${UNKNOWN}`)), {
    kind: 'invalid',
    message: /^invalid SELinux label: the policy does not know system_u:system_r:nobody_t:s0:c/,
  });
  assert.equal(seLinux.mountLabelOf('a'), undefined);
});

test('shared files have the types of containers and no categories', () => {
  assert.equal(sharedLabel('system_u:object_r:container_file_t:s0:c1,c2'), 'system_u:object_r:container_file_t:s0');
});

test('in a policy without levels labels have none', () => {
  const seLinux = make('process = "u:r:t"\nfile = u:o:f\n');
  assert.deepEqual(seLinux.take('a', plain()), { processLabel: 'u:r:t', mountLabel: 'u:o:f' });
  assert.equal(seLinux.take('b', plain('label=disable')).mountLabel, 'u:o:f');
  assert.equal(sharedLabel('u:o:f'), 'u:o:f');
});

test('only the word of the kernel makes a label unknown, not that it may not be asked', () => {
  const failing = (code: string) => (): void => {
    throw Object.assign(new Error(code), { code });
  };
  assert.equal(
    isValid('a:b:c', () => undefined),
    true,
  );
  assert.equal(isValid('a:b:c', failing('EINVAL')), false);
  for (const code of ['EACCES', 'EPERM', 'ENOENT']) assert.equal(isValid('a:b:c', failing(code)), true, code);
});

test('a policy without contexts for containers is none', () => {
  for (const text of ['', 'process = "a:b:c"', 'process = "a:b"\nfile = "a:b:c"'])
    assert.equal(containerContexts(text), undefined);
});
