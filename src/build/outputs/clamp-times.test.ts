import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { clampTimes } from './clamp-times.js';

const directory = mkdtempSync(join(tmpdir(), 'clamp-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const EPOCH = 1_700_000_000;
const LONG = `${'long'.repeat(40)}/${'name'.repeat(20)}`;

mkdirSync(join(directory, LONG, '..'), { recursive: true });
writeFileSync(join(directory, LONG), 'x'.repeat(1000));
writeFileSync(join(directory, 'old'), '');
writeFileSync(join(directory, 'new'), 'y'.repeat(512));
symlinkSync('new', join(directory, 'link'));
utimesSync(join(directory, 'old'), 1_600_000_000.25, 1_600_000_000.25);

/** Pieces whose ends fall anywhere. */
function* inPieces(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += 700) yield bytes.subarray(at, at + 700);
}

function listed(tar: Buffer): string {
  return execFileSync('tar', ['-tv', '--full-time', '--utc'], { input: tar }).toString();
}

describe('times in a tar', () => {
  for (const format of ['pax', 'gnu', 'ustar']) {
    it(`of the format ${format} become what tar itself would have written, and nothing else changes`, () => {
      const names = format === 'ustar' ? ['old', 'new', 'link'] : ['.'];
      const make = (...more: string[]): Buffer =>
        execFileSync('tar', ['-C', directory, `--format=${format}`, '--sort=name', ...more, '-c', ...names]);
      const clamped = Buffer.concat([...clampTimes(inPieces(make()), EPOCH)]);
      assert.equal(listed(clamped), listed(make(`--mtime=@${EPOCH}`, '--clamp-mtime')));
      assert.equal(clamped.length % 512, 0);
      const content = execFileSync('tar', ['-x', '-O'], { input: clamped });
      assert.deepEqual(content, execFileSync('tar', ['-x', '-O'], { input: make() }));
    });
  }

  it('stay when none is too late, and what is no tar passes', () => {
    const tar = execFileSync('tar', ['-C', directory, '--format=pax', '-c', 'old']);
    assert.deepEqual(Buffer.concat([...clampTimes(inPieces(tar), 2_000_000_000)]), tar);
    const other = Buffer.from('no tar at all');
    assert.deepEqual(Buffer.concat([...clampTimes([other], EPOCH)]), other);
  });
});
