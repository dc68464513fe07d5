/** Statements that a program has left: each kind of file and text that is not believed. Builds: test/build/sbom. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { readStatements, type ReadStatement } from './read-statements.js';

const SPDX = 'https://spdx.dev/Document';
const statement = (predicateType: string): string => JSON.stringify({ predicateType, predicate: { by: '<me>' } });
/** A file of that size without blocks on the disk. */
function sized(path: string, megabytes: number): void {
  writeFileSync(path, '');
  truncateSync(path, megabytes << 20);
}

/** Reads a directory that has a good statement and what `leave` puts beside it. */
function read(leave: (directory: string) => void): {
  readonly found: ReadStatement[];
  readonly predicates: readonly string[];
} {
  const directory = mkdtempSync(join(tmpdir(), 'statements-'));
  const [root, into] = [join(directory, 'root'), join(directory, 'into')];
  try {
    for (const made of [root, into]) mkdirSync(made);
    writeFileSync(join(root, 'sbom.spdx.json'), statement(SPDX));
    leave(root);
    const found = readStatements({ root, into });
    return { found, predicates: readdirSync(into).map((name) => readFileSync(join(into, name), 'utf8')) };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

describe('readStatements', () => {
  test('keeps the predicate of each file, with its size', () => {
    const { found, predicates } = read((root) => writeFileSync(join(root, 'b'), statement(SPDX)));
    assert.deepEqual(predicates, ['{"by":"<me>"}', '{"by":"<me>"}']);
    assert.deepEqual(
      found.map(({ name, predicateType, sizeBytes }) => [name, predicateType, sizeBytes]),
      ['b', 'sbom.spdx.json'].map((name) => [name, SPDX, 13]),
    );
  });

  const texts: Readonly<Record<string, readonly [text: string, error: RegExp]>> = {
    'half an object': ['{"predicateType": ', /cannot decode in-toto statement "a.spdx.json": invalid JSON/],
    'two values': [`${statement(SPDX)}\n${statement(SPDX)}`, /"a.spdx.json": unexpected content after JSON/],
    nothing: ['', /cannot decode in-toto statement "a.spdx.json"|bundle entry ""/],
    'another type': [
      statement('https://example.test/other'),
      /bundle entry "https:\/\/example.test\/other" of "a.spdx.json" does not match required predicate type/,
    ],
    'a list': ['["predicateType"]', /bundle entry "" of "a.spdx.json" does not match required predicate type/],
    'a deep list': ['['.repeat(200), /cannot decode in-toto statement "a.spdx.json": invalid JSON: exceeded max depth/],
  };
  for (const [what, [text, error]] of Object.entries(texts))
    test(`refuses ${what}`, () => {
      assert.throws(() => read((root) => writeFileSync(join(root, 'a.spdx.json'), text)), { message: error });
    });

  const notRegular = /^"a.spdx.json" of the scan is not a regular file$/;
  const kinds: Readonly<Record<string, readonly [leave: (root: string) => void, error: RegExp]>> = {
    'a link to a file of the host': [(root) => symlinkSync('/etc/passwd', join(root, 'a.spdx.json')), notRegular],
    'a link to a good statement': [(root) => symlinkSync('sbom.spdx.json', join(root, 'a.spdx.json')), notRegular],
    'a FIFO': [(root) => void execFileSync('mkfifo', [join(root, 'a.spdx.json')]), notRegular],
    'a directory': [(root) => mkdirSync(join(root, 'a.spdx.json')), notRegular],
    'a file of 50 MiB': [(root) => sized(join(root, 'a.spdx.json'), 50), /^"a.spdx.json" exceeds 41943040 bytes$/],
    'files that are too large together': [
      (root) => ['1', '2'].forEach((name) => sized(join(root, name), 40)),
      /^the files of the scan exceed 67108864 bytes$/,
    ],
    'more than 1000 files': [
      (root) => Array.from({ length: 1000 }, (_, i) => writeFileSync(join(root, `${i}.spdx.json`), statement(SPDX))),
      /^the scan has left more than 1000 files$/,
    ],
  };
  for (const [what, [leave, error]] of Object.entries(kinds))
    test(`refuses ${what}`, () => {
      assert.throws(() => read(leave), { message: error });
    });
});
