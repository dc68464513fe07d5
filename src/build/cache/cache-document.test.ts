import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chainBelow, MAX_DOCUMENT_BYTES, readCacheDocument, writeCacheDocument } from './cache-document.js';

const hex = (at: number): string => at.toString(16).padStart(64, '0');
const layer = (at: number, parent: number): object => ({
  blob: `sha256:${hex(at)}`,
  parent,
  annotations: { mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', diffID: `sha256:${hex(at)}`, size: at },
});
const read = (layers: readonly unknown[], records: readonly unknown[] = []): ReturnType<typeof readCacheDocument> =>
  readCacheDocument(Buffer.from(JSON.stringify({ layers, records })));

test('what is written is read again', () => {
  const document = read([layer(1, -1), layer(2, 0)], [{ digest: `sha256:${hex(9)}`, results: [{ layer: 1 }] }]);
  const again = readCacheDocument(writeCacheDocument(document));
  assert.deepEqual(again, document);
  assert.equal(again.records[0]?.key, hex(9));
  assert.deepEqual(
    chainBelow(again, 1)?.map(({ sizeBytes }) => sizeBytes),
    [1, 2],
  );
});

test('a layer that is left without a parent stands on the first one, as Go leaves zeros out', () => {
  const { parent: _, ...zero } = layer(2, 0) as { readonly parent: number };
  assert.equal(chainBelow(read([layer(1, -1), zero]), 1)?.length, 2);
});

test('chains that do not end, are broken or too long are none', () => {
  assert.equal(chainBelow(read([layer(1, 1), layer(2, 0)]), 0), undefined);
  assert.equal(chainBelow(read([layer(1, 7)]), 0), undefined);
  assert.equal(chainBelow(read([layer(1, -1)]), -1), undefined);
  assert.equal(chainBelow(read([{ ...layer(1, -1), blob: '../../x' }]), 0), undefined);
  const long = read(Array.from({ length: 600 }, (_, at) => layer(at, at - 1)));
  assert.equal(chainBelow(long, 599), undefined);
  assert.equal(chainBelow(long, 499)?.length, 500);
});

test('records that say nothing useful are left out; what is no document is refused', () => {
  const bad = [null, 1, {}, { digest: 'x', results: [{ layer: 0 }] }, { digest: `sha256:${hex(1)}`, results: 'x' }];
  assert.deepEqual(read([null, [], 7], bad), { layers: [undefined, undefined, undefined], records: [] });
  assert.deepEqual(readCacheDocument(Buffer.from('null')), { layers: [], records: [] });
  assert.throws(() => readCacheDocument(Buffer.from('{')), { code: 'BAD_CACHE' });
  assert.throws(() => readCacheDocument(Buffer.alloc(MAX_DOCUMENT_BYTES + 1, ' ')), { code: 'BAD_CACHE' });
});

test('a document with more in it than real ones is refused before it is parsed', () => {
  const many = Buffer.from(`{"layers":[${'0,'.repeat(100_000)}0]}`);
  assert.ok(many.length < MAX_DOCUMENT_BYTES);
  assert.throws(() => readCacheDocument(many), /invalid cache document: .*more than 100000 members/);
});
