/** Only pages that are as in the program's file are let go. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { test } from 'node:test';
import { mapProgram } from '../../../test/support/program-pages.js';
import { programMappings, releaseProgramPages, unchangedMappings } from './program-pages.js';

/** V8 copies its built-in functions only where its heap may have 2 GiB, which is half of the memory. */
const MEMORY_FOR_COPIES = 4 * 2 ** 30;
const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);

function described(range: string, access: string, place: string, copiesKiB: number, path = '/usr/bin/node'): string {
  return [
    `${range} ${access} ${place} fe:00 1538 ${' '.repeat(20)}${path}`,
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

test('parts that may be written to, that have copies, or are of other files are left alone', () => {
  const smaps = [
    described('3ff000-400000', 'r-xp', '00772000', 0),
    described('400000-b72000', 'r--p', '00000000', 0),
    described('b72000-25fe000', 'r-xp', '00772000', 0),
    described('3f3a000-3f45000', 'r--p', '03b3a000', 8),
    described('3f45000-3f63000', 'rw-p', '03b45000', 0),
    described('7fe400000000-7fe400021000', 'r-xp', '04000000', 0, '/usr/bin/node2'),
    described('7fe500000000-7fe500021000', 'r-xp', '04000000', 0, '/mnt/usr/bin/node'),
    described('7fe600000000-7fe600021000', 'rw-p', '04000000', 0, ''),
  ].join('');
  assert.deepEqual(unchangedMappings(smaps, '/usr/bin/node', 0x400040n), [
    { start: 0x400000n, length: 0x772000n },
    { start: 0xb72000n, length: 0x1a8c000n },
  ]);
});

test('what V8 has mapped of the program for a thread is left alone: it goes with the thread', async () => {
  const copy = described('7fddcbe40000-7fddcbfd2000', 'r-xp', '00900000', 0);
  const program =
    described('400000-b72000', 'r--p', '00000000', 0) + described('b72000-25fe000', 'r-xp', '00772000', 0);
  const last = described('3f45000-3f63000', 'rw-p', '03b45000', 0);
  assert.equal(unchangedMappings(program + last + copy, '/usr/bin/node', 0x400040n).length, 2);
  assert.equal(unchangedMappings(copy, '/usr/bin/node', 0x400040n).length, 0);
});

test('so it is in the real program, which has such a copy for each thread', async (t) => {
  // The copy is of what is mapped below.
  if (memory < MEMORY_FOR_COPIES) return t.skip('V8 makes no copies where there is little memory');
  const real = await readFile('/proc/self/smaps', 'latin1');
  const lines = real.split('\n').filter((line) => line.endsWith(` ${process.execPath}`));
  const parts = lines.map((line) => {
    const [, from = '', to = '', place = ''] = /^(\S+)-(\S+) \S+ (\S+)/.exec(line) ?? [];
    return { start: Number.parseInt(from, 16), end: Number.parseInt(to, 16), place: Number.parseInt(place, 16) };
  });
  const copies = parts.filter(({ start, place }) =>
    parts.some((one) => one.start < start && one.place <= place && place < one.place + one.end - one.start),
  );
  const found = await programMappings();
  assert.ok(found.length >= 2 && copies.length >= 1, lines.join('\n'));
  for (const copy of copies) assert.ok(!found.some(({ start }) => Number(start) === copy.start), lines.join('\n'));
});

test('libraries are let go of as well, where nobody may write to them', async () => {
  const smaps = await readFile('/proc/self/smaps', 'latin1');
  const found = new Set((await programMappings()).map(({ start }) => start));
  const released = [...smaps.matchAll(/^(\w+)-\S+ (\S+) \S+ \S+ \S+ +(\/.*)$/gm)]
    .map(([, start = '', access = '', path = '']) => ({ start: BigInt(`0x${start}`), access, path }))
    .filter(({ start }) => found.has(start));
  const paths = new Set(released.map(({ path }) => path).filter((path) => path !== process.execPath));
  assert.ok([...paths].some((path) => path.endsWith('/koffi.node')));
  for (const path of paths) assert.match(path, /\.so(?:\.\d+)*$|\.node$/);
  assert.deepEqual(
    released.filter(({ access }) => access.includes('w')),
    [],
  );
});

test('the program goes on with fewer pages', async () => {
  await mapProgram();
  const before = await residentFileKiB();
  await releaseProgramPages();
  const after = await residentFileKiB();
  assert.ok(after < before / 2, `${after} KiB are mapped of ${before}`);
  assert.equal(new Intl.NumberFormat('de').format(1234.5), '1.234,5');
});
