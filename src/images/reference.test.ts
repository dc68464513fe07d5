import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import {
  canonicalName,
  canonicalString,
  familiarName,
  familiarString,
  parseDigest,
  parseReference,
  withDefaultTag,
  withTagOrDigest,
} from './reference.js';

const HEX = '0123456789abcdef'.repeat(4);
const DIGEST = `sha256:${HEX}`;

/** written, canonical name, tag, digest, familiar string */
const VALID: readonly (readonly [string, string, string | undefined, string | undefined, string])[] = [
  ['alpine', 'docker.io/library/alpine', undefined, undefined, 'alpine'],
  ['alpine:3.20', 'docker.io/library/alpine', '3.20', undefined, 'alpine:3.20'],
  ['library/alpine', 'docker.io/library/alpine', undefined, undefined, 'alpine'],
  ['docker.io/alpine', 'docker.io/library/alpine', undefined, undefined, 'alpine'],
  ['docker.io/library/alpine:latest', 'docker.io/library/alpine', 'latest', undefined, 'alpine:latest'],
  ['index.docker.io/alpine', 'docker.io/library/alpine', undefined, undefined, 'alpine'],
  ['index.docker.io/team/app', 'docker.io/team/app', undefined, undefined, 'team/app'],
  ['docker.io/library/team/app', 'docker.io/library/team/app', undefined, undefined, 'library/team/app'],
  ['team/app', 'docker.io/team/app', undefined, undefined, 'team/app'],
  ['team/sub/app:v1', 'docker.io/team/sub/app', 'v1', undefined, 'team/sub/app:v1'],
  ['localhost/app', 'localhost/app', undefined, undefined, 'localhost/app'],
  ['localhost:5000/app', 'localhost:5000/app', undefined, undefined, 'localhost:5000/app'],
  ['localhost:5000', 'docker.io/library/localhost', '5000', undefined, 'localhost:5000'],
  ['127.0.0.1:5000/a/b:t', '127.0.0.1:5000/a/b', 't', undefined, '127.0.0.1:5000/a/b:t'],
  ['[::1]:5000/a', '[::1]:5000/a', undefined, undefined, '[::1]:5000/a'],
  ['[fe80::1]/a:t', '[fe80::1]/a', 't', undefined, '[fe80::1]/a:t'],
  ['reg.example.com/a', 'reg.example.com/a', undefined, undefined, 'reg.example.com/a'],
  ['Reg/a', 'Reg/a', undefined, undefined, 'Reg/a'],
  ['REG.example.com:80/a/b', 'REG.example.com:80/a/b', undefined, undefined, 'REG.example.com:80/a/b'],
  ['a_b/c__d/e-f/g---h/i.j', 'docker.io/a_b/c__d/e-f/g---h/i.j', undefined, undefined, 'a_b/c__d/e-f/g---h/i.j'],
  ['foo:TAG_1.x-y', 'docker.io/library/foo', 'TAG_1.x-y', undefined, 'foo:TAG_1.x-y'],
  ['foo:_x', 'docker.io/library/foo', '_x', undefined, 'foo:_x'],
  [`foo:${'t'.repeat(128)}`, 'docker.io/library/foo', 't'.repeat(128), undefined, `foo:${'t'.repeat(128)}`],
  [`foo@${DIGEST}`, 'docker.io/library/foo', undefined, DIGEST, `foo@${DIGEST}`],
  [`foo:1@${DIGEST}`, 'docker.io/library/foo', '1', DIGEST, `foo:1@${DIGEST}`],
  [`localhost:5000/foo@${DIGEST}`, 'localhost:5000/foo', undefined, DIGEST, `localhost:5000/foo@${DIGEST}`],
  [HEX.slice(1), `docker.io/library/${HEX.slice(1)}`, undefined, undefined, HEX.slice(1)],
  ['a', 'docker.io/library/a', undefined, undefined, 'a'],
  ['0', 'docker.io/library/0', undefined, undefined, '0'],
  ['xn--n3h.com/myimage', 'xn--n3h.com/myimage', undefined, undefined, 'xn--n3h.com/myimage'],
  ['a.b.c/d', 'a.b.c/d', undefined, undefined, 'a.b.c/d'],
  [`${'a/'.repeat(127)}a`, `docker.io/${'a/'.repeat(127)}a`, undefined, undefined, `${'a/'.repeat(127)}a`],
];

const FORMAT = 'invalid reference format';
const INVALID: readonly (readonly [string, string])[] = [
  ['', FORMAT],
  [':', FORMAT],
  [':tag', FORMAT],
  ['foo:', FORMAT],
  ['foo@', FORMAT],
  ['@', FORMAT],
  [`@${DIGEST}`, FORMAT],
  ['foo bar', FORMAT],
  [' foo', FORMAT],
  ['foo\n', FORMAT],
  ['foo/', FORMAT],
  ['/foo', FORMAT],
  ['foo//bar', FORMAT],
  ['-foo', FORMAT],
  ['foo-', FORMAT],
  ['_foo', FORMAT],
  ['foo..bar', FORMAT],
  ['foo.', FORMAT],
  ['foo___bar', FORMAT],
  ['foo/_bar', FORMAT],
  ['-host.com/foo', FORMAT],
  ['ho_st.com/foo', FORMAT],
  ['host.com:port/foo', FORMAT],
  ['[::1/foo', FORMAT],
  ['[::g]/foo', FORMAT],
  ['foo:tag:tag', FORMAT],
  ['foo:-tag', FORMAT],
  ['foo:.tag', FORMAT],
  [`foo:${'t'.repeat(129)}`, FORMAT],
  ['foo:ta/g', FORMAT],
  ['https://host.com/foo', FORMAT],
  ['foo@sha256:short', FORMAT],
  [`foo@${DIGEST}:tag`, FORMAT],
  ['\u00e4pfel', FORMAT],
  ['Foo', 'invalid reference format: repository name (library/Foo) must be lowercase'],
  ['team/App:1', 'invalid reference format: repository name (team/App) must be lowercase'],
  ['localhost:5000/App', 'invalid reference format: repository name (App) must be lowercase'],
  ['docker.io/App', 'invalid reference format: repository name (library/App) must be lowercase'],
  [HEX, `invalid repository name (${HEX}), cannot specify 64-byte hexadecimal strings`],
  [`foo@md5:${HEX}`, 'unsupported digest algorithm'],
  [`foo@sha256:${HEX}00`, 'invalid checksum digest length'],
  [`foo@sha256:${HEX.slice(2)}`, 'invalid checksum digest length'],
  [`foo@sha256:${HEX.toUpperCase()}`, 'invalid checksum digest format'],
  [`${'a/'.repeat(128)}a`, 'repository name must not be more than 255 characters'],
];

test('valid references are normalised', () => {
  for (const [text, name, tag, digest, familiar] of VALID) {
    const reference = parseReference(text);
    assert.equal(canonicalName(reference), name, text);
    assert.equal(reference.tag, tag, text);
    assert.equal(reference.digest, digest, text);
    assert.equal(familiarString(reference), familiar, text);
  }
});

test('a familiar or canonical form parses to the same reference', () => {
  for (const [text] of VALID) {
    const reference = parseReference(text);
    assert.deepEqual(parseReference(canonicalString(reference)), reference, text);
    assert.deepEqual(parseReference(familiarString(reference)), reference, text);
  }
});

test('malformed references are refused with the texts clients know', () => {
  for (const [text, message] of INVALID) {
    assert.throws(
      () => parseReference(text),
      (error) => isEngineError(error, 'invalid') && error.message === message,
      JSON.stringify(text),
    );
  }
});

test('latest is added only to a bare name', () => {
  assert.equal(familiarString(withDefaultTag(parseReference('foo'))), 'foo:latest');
  assert.equal(familiarString(withDefaultTag(parseReference('foo:1'))), 'foo:1');
  assert.equal(familiarString(withDefaultTag(parseReference(`foo@${DIGEST}`))), `foo@${DIGEST}`);
});

test('the tag parameter may be a tag or a digest', () => {
  const foo = parseReference('foo:old');
  assert.equal(familiarString(withTagOrDigest(foo, 'new')), 'foo:new');
  assert.equal(familiarString(withTagOrDigest(foo, DIGEST)), `foo@${DIGEST}`);
  assert.throws(() => withTagOrDigest(foo, 'a/b'), { message: 'invalid tag format' });
  assert.throws(() => withTagOrDigest(foo, 'a:b'), { message: 'unsupported digest algorithm' });
  assert.equal(familiarName(foo), 'foo');
  assert.throws(() => parseDigest(`sha512:${'0'.repeat(128)}`), { message: 'unsupported digest algorithm' });
});
