/** Only pages that are as in the program's file are let go. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { releaseProgramPages, unchangedMappings } from './program-pages.js';

function described(range: string, access: string, copiesKiB: number, path: string): string {
  return [
    `${range} ${access} 00001000 fe:00 1538 ${' '.repeat(20)}${path}`,
    'Size:                 40 kB',
    'Rss:                  40 kB',
    `Anonymous:        ${String(copiesKiB).padStart(6)} kB`,
    'THPeligible:           0',
    'VmFlags: rd ex mr mw me sd ',
    '',
  ].join('\n');
}

const residentFileKiB = async (): Promise<number> =>
  Number(/^RssFile:\s+(\d+)/m.exec(await readFile('/proc/self/status', 'latin1'))?.[1]);

test('mappings that may be written to, that have copies, or are of other files are left alone', () => {
  const smaps = [
    described('400000-b72000', 'r--p', 0, '/usr/bin/node'),
    described('b72000-25fe000', 'r-xp', 0, '/usr/bin/node'),
    described('3f3a000-3f45000', 'r--p', 8, '/usr/bin/node'),
    described('3f45000-3f63000', 'rw-p', 0, '/usr/bin/node'),
    described('7fe400000000-7fe400021000', 'r-xp', 0, '/usr/bin/node2'),
    described('7fe500000000-7fe500021000', 'r-xp', 0, '/mnt/usr/bin/node'),
    described('7fe600000000-7fe600021000', 'rw-p', 0, ''),
  ].join('');
  assert.deepEqual(unchangedMappings(smaps, '/usr/bin/node'), [
    { start: 0x400000n, length: 0x772000n },
    { start: 0xb72000n, length: 0x1a8c000n },
  ]);
});

test('the program goes on with fewer pages', async () => {
  const before = await residentFileKiB();
  await releaseProgramPages();
  const after = await residentFileKiB();
  assert.ok(after < before / 2, `${after} KiB are mapped of ${before}`);
  assert.equal(new Intl.NumberFormat('de').format(1234.5), '1.234,5');
});
