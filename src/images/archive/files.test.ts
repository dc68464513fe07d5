import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { ArchiveFiles } from './files.js';
import { planLoad } from './plan.js';

const host = { os: 'linux', architecture: 'amd64', variant: '' };
const blob = (text: string): string => `blobs/sha256/${createHash('sha256').update(text).digest('hex')}`;
const descriptor = (type: string, text: string): object => ({
  mediaType: `application/vnd.oci.image.${type}.v1+json`,
  digest: blob(text).replace('blobs/sha256/', 'sha256:'),
  size: text.length,
});
const index = (text: string): string => JSON.stringify({ schemaVersion: 2, manifests: [descriptor('manifest', text)] });
const configOf = (author: string): string =>
  JSON.stringify({ ...host, author, rootfs: { type: 'layers', diff_ids: [] } });
const manifestOf = (config: string): string =>
  JSON.stringify({ schemaVersion: 2, config: descriptor('config', config), layers: [] });

/** Plans the load of an archive with these files. */
function plan(documents: Readonly<Record<string, string>>, links: Readonly<Record<string, string>> = {}) {
  const files = new ArchiveFiles({
    documents: new Map(Object.entries(documents).map(([name, text]) => [name, Buffer.from(text)])),
    links: new Map(Object.entries(links)),
    layers: [],
  });
  return planLoad(files, { platform: undefined, host, isWhole: false });
}

const [good, evil] = [configOf('good'), configOf('evil')];
const manifest = manifestOf(good);
const isRefused = { kind: 'data-loss', code: 'DIGEST_MISMATCH' };

test('a link may stand for a blob that has its digest', () => {
  const documents = { 'index.json': index(manifest), config: good, manifest };
  const [image] = plan(documents, { [blob(manifest)]: 'manifest', [blob(good)]: 'config' });
  assert.equal(image?.published?.own, blob(manifest).replace('blobs/sha256/', 'sha256:'));
});

test('an image cannot have the digest of another one by a link', () => {
  const whole = { 'index.json': index(manifest), [blob(manifest)]: manifest, [blob(good)]: good };
  assert.equal(plan(whole).length, 1);
  // The manifest is the true one, and its configuration is not.
  const { [blob(good)]: _, ...others } = whole;
  assert.throws(() => plan({ ...others, config: evil }, { [blob(good)]: 'config' }), isRefused);
  const forged = { 'index.json': index(manifest), manifest: manifestOf(evil), [blob(evil)]: evil };
  assert.throws(() => plan(forged, { [blob(manifest)]: 'manifest' }), isRefused);
  // With manifest.json the image has only what is true.
  const listed = { ...forged, 'manifest.json': JSON.stringify([{ Config: blob(evil), Layers: [] }]) };
  assert.equal(plan(listed, { [blob(manifest)]: 'manifest' })[0]?.published, undefined);
});
