import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { sealDiff } from '../tasks/seal-diff.js';
import { GrowingTar } from './growing-tar.js';

const temp = mkdtempSync(join(tmpdir(), 'growing-'));
after(() => rmSync(temp, { recursive: true }));

const SECOND = 1_600_000_000;
let count = 0;

/** Calls `grow` with a tar of an empty directory; returns what it is in the end. */
function grown(grow: (tar: GrowingTar, upperDir: string) => void): ReturnType<GrowingTar['end']> {
  const upperDir = mkdtempSync(join(temp, 'upper-'));
  const tarSplitPath = join(temp, `split-${count++}`);
  const tar = new GrowingTar({ upperDir, tarSplitPath, idMaps: undefined });
  grow(tar, upperDir);
  const facts = tar.end();
  tar.close();
  assert.equal(existsSync(tarSplitPath), facts !== undefined);
  const walked = sealDiff({ upperDir, tarSplitPath: `${tarSplitPath}-walked`, idMaps: undefined });
  if (facts) assert.equal(facts.diffId, walked?.diffId);
  return facts;
}

function directory(tar: GrowingTar, upperDir: string, name: string): void {
  mkdirSync(join(upperDir, name));
  tar.willHaveTime(name, BigInt(SECOND) * 1_000_000_000n);
  tar.entry(name);
}

function file(tar: GrowingTar, upperDir: string, name: string): void {
  writeFileSync(join(upperDir, name), name);
  tar.entry(name);
}

test('a directory has in the end the time that was told, or the files are walked through', () => {
  const make = (tar: GrowingTar, upperDir: string): void => {
    directory(tar, upperDir, 'd');
    file(tar, upperDir, 'd/file');
  };
  const facts = grown((tar, upperDir) => {
    make(tar, upperDir);
    utimesSync(join(upperDir, 'd'), SECOND, SECOND);
  });
  assert.equal(facts?.sizeBytes, 6);
  assert.equal(grown(make), undefined, 'another time');
  const changed = grown((tar, upperDir) => {
    make(tar, upperDir);
    chmodSync(join(upperDir, 'd'), 0o700);
    utimesSync(join(upperDir, 'd'), SECOND, SECOND);
  });
  assert.equal(changed, undefined, 'another mode');
});

test('names that did not come, came twice or in another order have the files walked through', () => {
  assert.equal(
    grown((tar, upperDir) => {
      file(tar, upperDir, 'a');
      writeFileSync(join(upperDir, 'b'), '');
    }),
    undefined,
  );
  assert.equal(
    grown((tar, upperDir) => {
      file(tar, upperDir, 'a');
      tar.entry('a');
    }),
    undefined,
  );
  assert.equal(
    grown((tar, upperDir) => {
      for (const name of ['b', 'a']) file(tar, upperDir, name);
    }),
    undefined,
  );
  assert.ok(grown((tar, upperDir) => ['a', 'a-b', 'b'].forEach((name) => file(tar, upperDir, name))));
});

test('files of one directory and of others come in the order of a walk, which is not that of their paths', () => {
  const made = (names: readonly string[]): ReturnType<GrowingTar['end']> =>
    grown((tar, upperDir) => {
      for (const name of names) {
        const at = join(upperDir, name);
        if (name.endsWith('/')) {
          directory(tar, upperDir, name.slice(0, -1));
          continue;
        }
        // Each is shorter than the one before, of whose header nothing may stay.
        writeFileSync(at, name);
        chmodSync(at, 0o644);
        utimesSync(at, SECOND, SECOND);
        const { uid, gid, mode } = statSync(at);
        const facts = { uid, gid, mode: mode & 0o7777, mtimeNs: BigInt(SECOND) * 1_000_000_000n };
        tar.file(name, facts, Buffer.from(name));
      }
      for (const name of names.filter((one) => one.endsWith('/')).toReversed())
        utimesSync(join(upperDir, name), SECOND, SECOND);
    });
  assert.ok(made(['long name/', 'long name/b/', 'long name/b/c', 'long name/b-c', 'long-a', 'z']));
  assert.equal(made(['d/', 'd/b', 'd/a']), undefined);
  assert.equal(made(['d/', 'd/b/', 'd/b/c', 'd/a']), undefined);
  assert.equal(made(['d/', 'e/', 'e/a', 'd/a']), undefined);
});
