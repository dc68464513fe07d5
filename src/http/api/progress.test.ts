import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeProgress, humanSize, progressBar } from './progress.js';

test('sizes have four significant digits and decimal units', () => {
  const table: readonly (readonly [number, string])[] = [
    [0, '0B'],
    [999, '999B'],
    [1000, '1kB'],
    [1234, '1.234kB'],
    [12_345, '12.35kB'],
    [123_456, '123.5kB'],
    [1_000_000, '1MB'],
    [2_813_316, '2.813MB'],
    [3e9, '3GB'],
    [5.5e12, '5.5TB'],
  ];
  for (const [bytes, text] of table) assert.equal(humanSize(bytes), text);
});

test('the bar is that of the known clients', () => {
  assert.equal(progressBar(0, 0), '');
  assert.equal(progressBar(0, 100), `[>${' '.repeat(50)}]       0B/100B`);
  assert.equal(progressBar(1000, 2000), `[${'='.repeat(25)}>${' '.repeat(25)}]      1kB/2kB`);
  assert.equal(progressBar(2000, 2000), `[${'='.repeat(50)}>]      2kB/2kB`);
  assert.equal(progressBar(2001, 2000), `[${'='.repeat(50)}>]  2.001kB`);
  assert.equal(progressBar(5, 0), '      5B');
});

test('messages end with CR LF', () => {
  assert.equal(
    encodeProgress({ kind: 'state', status: 'Waiting', id: 'abc' }),
    '{"status":"Waiting","progressDetail":{},"id":"abc"}\r\n',
  );
});

const one = { mediaType: 'm', digest: 'sha256:0', size: 2 } as const;

test('every fact has the form that clients know', () => {
  const lines = (
    [
      { kind: 'line', text: 'Pulling from a', id: 'latest' },
      { kind: 'line', text: 'Digest: sha256:0' },
      { kind: 'bytes', status: 'Downloading', id: 'abc', current: 1, total: 1 },
      { kind: 'pushed', tag: 'latest', digest: 'sha256:0', sizeBytes: 7 },
      { kind: 'pushed-alone', index: { ...one, digest: 'sha256:1' }, manifest: one },
      { kind: 'failed', message: 'broken' },
    ] as const
  ).map((fact) => encodeProgress(fact).trimEnd());
  assert.deepEqual(lines, [
    '{"status":"Pulling from a","id":"latest"}',
    '{"status":"Digest: sha256:0"}',
    '{"status":"Downloading","progressDetail":{"current":1,"total":1},' +
      `"progress":"[${'='.repeat(50)}>]       1B/1B","id":"abc"}`,
    '{"progressDetail":{},"aux":{"Tag":"latest","Digest":"sha256:0","Size":7}}',
    '{"progressDetail":{},"aux":{"manifestPushedInsteadOfIndex":true,' +
      '"originalIndex":{"mediaType":"m","digest":"sha256:1","size":2},' +
      '"selectedManifest":{"mediaType":"m","digest":"sha256:0","size":2}}}',
    '{"errorDetail":{"message":"broken"},"error":"broken"}',
  ]);
});
