/** Labels of trees: everything below gets one, nothing outside, and places of the system none. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { getXattr } from '../../sys/files/xattr.js';
import { relabelTree, SELINUX_ATTRIBUTE } from './relabel-tree.js';

const LABEL = 'system_u:object_r:container_file_t:s0:c1,c2';
let dir: string;
before(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'relabel-')));
});
after(() => rmSync(dir, { recursive: true }));

const labelOf = (path: string | Buffer): string | undefined => getXattr(path, SELINUX_ATTRIBUTE)?.toString();

test('a tree gets the label, whatever the names of its files are, and links are not followed', () => {
  const [tree, outside] = [join(dir, 'tree'), join(dir, 'outside')];
  mkdirSync(join(tree, 'a/b'), { recursive: true });
  mkdirSync(outside);
  writeFileSync(join(tree, 'a/file'), '');
  writeFileSync(join(outside, 'file'), '');
  const odd = Buffer.concat([Buffer.from(`${tree}/a/b/`), Buffer.from([0xff, 0x0a, 0xe4])]);
  writeFileSync(odd, '');
  symlinkSync(outside, join(tree, 'to-directory'));
  symlinkSync(join(outside, 'file'), join(tree, 'a/to-file'));
  relabelTree({ path: tree, label: LABEL });
  for (const path of [tree, join(tree, 'a'), join(tree, 'a/b'), join(tree, 'a/file'), odd])
    assert.equal(labelOf(path), `${LABEL}\0`, path.toString());
  for (const path of [outside, join(outside, 'file')]) assert.equal(labelOf(path), undefined, path);
  assert.equal(labelOf(join(tree, 'to-directory')), `${LABEL}\0`, 'the link itself has it');
});

test('a file gets the label alone', () => {
  writeFileSync(join(dir, 'one'), '');
  writeFileSync(join(dir, 'other'), '');
  relabelTree({ path: join(dir, 'one'), label: LABEL });
  assert.equal(labelOf(join(dir, 'one')), `${LABEL}\0`);
  assert.equal(labelOf(join(dir, 'other')), undefined);
});

test('places of the system are refused by name', () => {
  for (const path of ['/', '/etc', '/usr', '/home', '/var/lib', '/etc/passwd'])
    assert.throws(() => relabelTree({ path, label: LABEL }), {
      kind: 'invalid',
      message: `SELinux relabeling of ${path} is not allowed`,
    });
});

test('a link that somebody puts into the path leads nowhere', () => {
  mkdirSync(join(dir, 'target/below'), { recursive: true });
  symlinkSync(join(dir, 'target'), join(dir, 'link'));
  const path = join(dir, 'link/below');
  assert.throws(() => relabelTree({ path, label: LABEL }), {
    message: `SELinux relabeling of ${join(dir, 'target/below')} is not allowed`,
  });
  assert.equal(labelOf(join(dir, 'target/below')), undefined);
  symlinkSync(dirname('/etc/passwd'), join(dir, 'etc'));
  relabelTree({ path: join(dir, 'etc'), label: LABEL });
  assert.equal(labelOf('/etc'), undefined);
});

test('a tree that is too deep is refused, and one that is nearly so is not', () => {
  const deep = (levels: number): string => {
    const top = join(dir, `deep-${levels}`);
    // A path of the whole depth would be longer than the kernel takes.
    mkdirSync(top);
    const before = process.cwd();
    process.chdir(top);
    try {
      for (let level = 0; level < levels; level++) {
        mkdirSync('d');
        process.chdir('d');
      }
    } finally {
      process.chdir(before);
    }
    return top;
  };
  relabelTree({ path: deep(1000), label: LABEL });
  assert.throws(() => relabelTree({ path: deep(1001), label: LABEL }), /more than 1000 levels/);
});
