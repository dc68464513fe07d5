/** Definitions that clients solve: what is read of them, and what is refused. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { encode } from './grpc-messages.js';
import { type Definition, DefinitionSchema, OpSchema } from './proto/gen/common_pb.js';
import { sourceOrder } from './source-definition.js';

type Operation = Pick<Extract<MessageInitShape<typeof OpSchema>, { readonly $typeName?: never }>, 'op'>;

const NONE = { case: undefined } as const;

const digestOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** Makes a definition of operations, each of which gets the one before it for its input. */
function definition(...operations: Operation[]): Definition {
  const def: Uint8Array[] = [];
  for (const operation of [...operations, {}]) {
    const before = def.at(-1);
    def.push(encode(OpSchema, { op: operation.op ?? NONE, inputs: before ? [{ digest: digestOf(before) }] : [] }));
  }
  return create(DefinitionSchema, { def });
}

const source = (identifier: string, attrs: Record<string, string> = {}): Operation => ({
  op: { case: 'source', value: { identifier, attrs } },
});
const unpack = (input: bigint): Operation => ({
  op: { case: 'file', value: { actions: [{ input, copy: { src: '/a', dest: '/', attemptUnpack: true } }] } },
});

test('sources are read with their attributes', () => {
  const git = source('git://host/repo.git#branch:dir', {
    'git.fullurl': 'https://host/repo.git',
    'git.keepgitdir': 'true',
    'git.checksum': 'abc',
  });
  assert.deepEqual(sourceOrder(definition(git)), {
    url: 'https://host/repo.git#branch:dir',
    checksum: 'abc',
    keepGitDir: true,
  });
  const http = source('https://host/file', { 'http.filename': 'context', 'http.checksum': 'sha256:1' });
  const order = { url: 'https://host/file', checksum: 'sha256:1', keepGitDir: undefined, isFile: true };
  assert.deepEqual(sourceOrder(definition(http)), { ...order, unpacks: false, fileName: 'context' });
  assert.deepEqual(sourceOrder(definition(http, unpack(-1n))), { ...order, unpacks: true, fileName: 'context' });
});

test('all else is refused', () => {
  const refused: readonly [Definition, RegExp][] = [
    [definition({ op: { case: 'exec', value: {} } }), /definitions with exec/],
    ...['../x', '/etc/x', '..', '', 'a\0b', 'x'.repeat(300)].map((name): [Definition, RegExp] => [
      definition(source('https://host/file', { 'http.filename': name })),
      /bad http\.filename/,
    ]),
    [definition(source(`https://host/${'x'.repeat(70_000)}`)), /so many operations/],
    [definition(source('local://context')), /definitions with source local/],
    [definition(source('docker-image://busybox')), /definitions with source docker-image/],
    [definition(source('https://host/file'), unpack(0n)), /definitions with file/],
    [definition(source('https://host/file'), { op: { case: 'merge', value: {} } }), /definitions with merge/],
    [definition(...Array.from({ length: 20 }, () => source('https://host/file'))), /so many operations/],
    [create(DefinitionSchema, { def: [encode(OpSchema, {})] }), /names none of the others/],
    [create(DefinitionSchema, { def: [Buffer.from([0xff, 0xff, 0xff])] }), /cannot be read/],
  ];
  for (const [given, text] of refused) assert.throws(() => sourceOrder(given), text);
});
