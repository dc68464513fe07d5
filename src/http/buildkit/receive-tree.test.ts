import assert from 'node:assert/strict';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  type BigIntStats,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { digestSources } from '../../build/files/copy-files.js';
import { KeptDigests, noteDigests } from '../../build/files/kept-digests.js';
import { writeFiles } from '../../build/files/write-files.js';
import { goModeOf } from './file-stat.js';
import type { MessageCall } from './grpc-client.js';
import { decode, encode } from './grpc-messages.js';
import { JoinedPieces } from './joined-pieces.js';
import { Packet_Type, PacketSchema, type StatSchema } from './proto/gen/session_pb.js';
import { receiveSmallFiles } from './receive-small-files.js';
import { receiveTree } from './receive-tree.js';

const directory = mkdtempSync(join(tmpdir(), 'receive-'));
after(() => rmSync(directory, { recursive: true, force: true }));
let roots = 0;

type Packet = MessageInitShape<typeof PacketSchema>;
const FILE = goModeOf('file', 0o644);
const DIRECTORY = goModeOf('directory', 0o755);
const LINK = goModeOf('symlink', 0o777);
const FIFO = goModeOf('fifo', 0o4620);
const OTHER = goModeOf('other', 0o644);

/** A client that sends these packets, whatever it is asked for. */
function client(packets: readonly (Packet | Buffer)[], asked: number[] = []): MessageCall {
  return {
    send: async (...messages) => {
      for (const packet of messages.map((message) => decode(PacketSchema, message)))
        if (packet.type === Packet_Type.REQ) asked.push(packet.id);
    },
    end: () => undefined,
    cancel: () => undefined,
    async *messages() {
      for (const packet of packets) {
        const message = Buffer.isBuffer(packet) ? packet : encode(PacketSchema, packet);
        const all = 'stat' in packet ? message : Buffer.concat([message], 2 * message.length + 1);
        yield await Promise.resolve(all.subarray(0, message.length));
        // Nothing may be kept of it, because it is much larger than what is of use in it.
        all.fill('x');
      }
    },
  };
}

function stat(path: string, mode: number, more: MessageInitShape<typeof StatSchema> = {}): Packet {
  return { type: Packet_Type.STAT, stat: { path, mode, modTime: 1_000_000_001n, ...more } };
}
const LAST: Packet = { type: Packet_Type.STAT };
const data = (id: number, text: string): Packet => ({ type: Packet_Type.DATA, id, data: Buffer.from(text) });

function newRoot(): string {
  const root = join(directory, `root${++roots}`);
  mkdirSync(root);
  return root;
}

const receive = (root: string, packets: readonly (Packet | Buffer)[], asked?: number[]): Promise<number> =>
  receiveTree({
    root,
    call: client(packets, asked),
    progress: { bytes: () => undefined },
    writeFiles: async (batch) => writeFiles(batch),
  });

test('files, directories and links of both kinds come; what is the same does not come again', async () => {
  const root = newRoot();
  const listed = [
    stat('d', DIRECTORY),
    stat('d/f', FILE, { size: 2n }),
    stat('d/g', FILE, { linkname: 'd/f', size: 2n }),
    stat('d-e', FILE, { size: 1n }),
    stat('l', LINK, { linkname: '../../etc/passwd' }),
    stat('o', OTHER),
    stat('p', FIFO, { uid: 7, gid: 8 }),
    LAST,
  ];
  const bytes = await receive(root, [...listed, data(1, 'ab'), data(3, 'c'), data(1, ''), data(3, '')]);
  assert.equal(bytes, 3, 'a file with two names counts once');
  assert.equal(readFileSync(join(root, 'd/g'), 'utf8'), 'ab');
  assert.deepEqual(readdirSync(root).toSorted(), ['d', 'd-e', 'l', 'p']);
  const pipe = lstatSync(join(root, 'p'), { bigint: true });
  const { mode, uid, gid, mtimeNs } = pipe;
  assert.deepEqual([pipe.isFIFO(), mode & 0o7777n, uid, gid, mtimeNs], [true, 0o4620n, 7n, 8n, 1_000_000_001n]);

  const asked: number[] = [];
  const next = [stat('d', DIRECTORY), stat('d-e', FILE, { size: 1n }), stat('m', FILE, { size: 9n }), LAST];
  const left = await receive(root, [...next, data(2, 'four'), data(2, '')], asked);
  assert.equal(left, 5, 'what has stayed and what has come, whatever its size was said to be');
  assert.deepEqual(asked, [2]);
  assert.deepEqual(readdirSync(root).toSorted(), ['d', 'd-e', 'm']);
  assert.deepEqual(readdirSync(join(root, 'd')), []);
});

test('many small files beside large ones come whole, with their attributes', async () => {
  const root = newRoot();
  const count = 300;
  const name = (at: number): string => `f${String(at).padStart(3, '0')}`;
  const text = (at: number): string => (at % 50 === 7 ? `${at}`.repeat(100_000) : `${at}`.repeat(at % 5));
  const mode = goModeOf('file', 0o4711);
  const stats = Array.from({ length: count }, (_, at) =>
    stat(name(at), mode, { uid: 7, gid: 8, modTime: BigInt(at) * 1_000_000_007n, size: BigInt(text(at).length) }),
  );
  const pieces = Array.from({ length: count }, (_, at) => [
    ...(text(at).match(/[^]{1,30000}/g) ?? []).map((piece) => data(at, piece)),
    data(at, ''),
  ]);
  await receive(root, [...stats, LAST, ...pieces.flat()]);
  for (let at = 0; at < count; at++) {
    const path = join(root, name(at));
    assert.equal(readFileSync(path, 'utf8'), text(at));
    const { uid, gid, mode: bits, mtimeNs } = lstatSync(path, { bigint: true });
    assert.deepEqual([uid, gid, bits & 0o7777n, mtimeNs], [7n, 8n, 0o4711n, BigInt(at) * 1_000_000_007n]);
  }
});

test('pieces are copied, except one that is at least half of what it keeps, until another follows', () => {
  const first = Buffer.alloc(10_000, 'a');
  const last = Buffer.from('b');
  for (const piece of [first, first.subarray(5_000)]) {
    const [joined, again] = [new JoinedPieces(), new JoinedPieces()];
    for (const pieces of [joined, again]) {
      pieces.push(piece);
      assert.equal(pieces.view().buffer, first.buffer);
    }
    joined.push(last);
    assert.equal(joined.view().toString(), `${piece.toString()}b`);
    again.clear();
    again.push(last);
    assert.equal(again.view().toString(), 'b');
  }
  assert.ok(first.equals(Buffer.alloc(10_000, 'a')));
  const copied = new JoinedPieces();
  copied.push(first.subarray(5_001));
  assert.notEqual(copied.view().buffer, first.buffer);
  assert.equal(copied.length, 4_999);
});

test('bytes that were moved are those of the message no more, and what follows is not written to their place', () => {
  const message = Buffer.alloc(10_000, 'a');
  const memory = Buffer.alloc(20_000, 'x');
  const joined = new JoinedPieces();
  joined.push(message);
  joined.moveTo(memory.subarray(5_000, 15_000));
  message.fill('b');
  assert.ok(joined.view().equals(Buffer.alloc(10_000, 'a')));
  joined.clear();
  joined.push(Buffer.from('c'));
  const around = Buffer.alloc(5_000, 'x');
  assert.ok(memory.equals(Buffer.concat([around, Buffer.alloc(10_000, 'a'), around])));
});

test('a disk that takes no more ends the transfer', async () => {
  const full = Object.assign(new Error('full'), { code: 'ENOSPC' });
  const names = Array.from({ length: 200 }, (_, at) => `f${String(at).padStart(3, '0')}`);
  const packets = [...names.map((name) => stat(name, FILE)), LAST, ...names.map((_, at) => data(at, ''))];
  const order = { root: newRoot(), call: client(packets), progress: { bytes: () => undefined } };
  await assert.rejects(receiveTree({ ...order, writeFiles: () => Promise.reject(full) }), full);
});

describe('a client cannot write outside, twice, or without end', () => {
  const cases: readonly (readonly [what: string, packets: readonly Packet[], error: RegExp])[] = [
    ['above', [stat('../x', FILE)], /escape check/],
    ['an absolute path', [stat('/x', FILE)], /escape check/],
    ['a path that is not clean', [stat('d', DIRECTORY), stat('d//x', FILE)], /escape check/],
    ['an empty path', [stat('', FILE)], /escape check/],
    ['through a link', [stat('l', LINK, { linkname: directory }), stat('l/x', FILE)], /out of order/],
    ['without its directory', [stat('d/x', FILE)], /out of order/],
    ['twice', [stat('x', FILE), stat('x', FILE)], /out of order/],
    ['in a directory that has ended', [stat('d', DIRECTORY), stat('e', FILE), stat('d/x', FILE)], /out of order/],
    ['a link to what it has not sent', [stat('x', FILE, { linkname: '../outside' }), LAST], /sent a link to/],
    ['bytes that nobody wants', [stat('x', FILE), data(7, 'a')], /invalid file request 7/],
    ['nothing', [], /before its end/],
    ['an error', [{ type: Packet_Type.ERR, data: Buffer.from('no such dir') }], /error from sender: no such dir/],
  ];
  for (const [what, packets, error] of cases) {
    test(what, async () => {
      writeFileSync(join(directory, 'outside'), 'secret');
      await assert.rejects(receive(newRoot(), packets), error);
      assert.equal(readFileSync(join(directory, 'outside'), 'utf8'), 'secret');
    });
  }
});

test('names that are not UTF-8 are shown as a shell takes them', async () => {
  const broken = (path: string, linkname?: string): Buffer => {
    const message = encode(PacketSchema, linkname === undefined ? stat(path, FILE) : stat(path, LINK, { linkname }));
    message[message.indexOf('?')] = 0xff;
    return message;
  };
  await assert.rejects(receive(newRoot(), [broken("it's?\n")]), {
    message: "the name of a file in the context is not UTF-8: $'it\\x27s\\xff\\x0a'",
  });
  await assert.rejects(receive(newRoot(), [broken('l', 'x?')]), {
    message: "the target of the link $'l' in the context is not UTF-8: $'x\\xff'",
  });
});

test("attributes count among what is kept of a client's files", async () => {
  const xattrs = { 'user.large': Buffer.alloc(15 * 1024 * 1024) };
  const packets = Array.from({ length: 36 }, (_, at) => stat(`p${String(at).padStart(2, '0')}`, OTHER, { xattrs }));
  await assert.rejects(receive(newRoot(), packets), /too many files/);
});

test('a link of an earlier state is not followed', async () => {
  const root = newRoot();
  const outside = join(directory, 'elsewhere');
  mkdirSync(outside);
  symlinkSync(outside, join(root, 'd'));
  await receive(root, [stat('d', DIRECTORY), stat('d/x', FILE, { size: 1n }), LAST, data(1, 'a'), data(1, '')]);
  assert.deepEqual(readdirSync(outside), []);
  assert.equal(readFileSync(join(root, 'd/x'), 'utf8'), 'a');
});

test('digests of small files that have come are those that reading gives, and of these files alone', async () => {
  const root = newRoot();
  const digests = `${root}.digests`;
  const names = Array.from({ length: 600 }, (_, index) => `f${String(index).padStart(3, '0')}`);
  const packets = [
    ...names.map((name) => stat(name, FILE, { size: 5n })),
    LAST,
    ...names.flatMap((name, id) => [data(id, `+${name}`), data(id, '')]),
  ];
  // All are on their way at once.
  let batches = 0;
  let begin = (): void => undefined;
  const allThere = new Promise<void>((resolve) => (begin = resolve));
  await receiveTree({
    root,
    call: client(packets),
    progress: { bytes: () => undefined },
    writeFiles: async (batch) => {
      if (++batches === 4) begin();
      await allThere;
      return writeFiles(batch);
    },
    noteDigests: async (records) => noteDigests({ path: digests, root, records }),
  });
  for (const name of names) assert.equal(readFileSync(join(root, name), 'utf8'), `+${name}`);
  const lstat = (name: string): BigIntStats => lstatSync(join(root, name), { bigint: true });
  const known = new KeptDigests(digests, lstat('').dev);
  assert.ok(names.filter((name) => known.find(lstat(name)) !== undefined).length >= 256);
  const digestOf = (path?: string): string => {
    const tree = { root, sources: ['/'], ignore: [], exclude: [], digests: path };
    return digestSources({ trees: [tree], ignoresOwners: false }).hex;
  };
  assert.equal(digestOf(digests), digestOf());
  writeFileSync(join(root, 'f000'), '-f000');
  assert.equal(known.find(lstat('f000')), undefined);
  assert.equal(digestOf(digests), digestOf());
});

describe('small files', () => {
  const wanted = (packets: readonly Packet[], asked?: number[]): Promise<ReadonlyMap<string, Buffer> | undefined> =>
    receiveSmallFiles({
      call: client(packets, asked),
      paths: new Set(['sub/Dockerfile', 'sub/missing']),
      maxBytes: 8,
      bytes: () => undefined,
    });
  const there = [stat('sub', DIRECTORY), stat('sub/Dockerfile', FILE, { size: 8n })];

  test('come into memory, in pieces, and what is missing is left out', async () => {
    const asked: number[] = [];
    const found = await wanted([...there, LAST, data(1, 'FROM'), data(1, ' x\r\n'), data(1, '')], asked);
    assert.deepEqual([...(found ?? [])].map(String), ['sub/Dockerfile,FROM x\r\n']);
    assert.deepEqual(asked, [1]);
    assert.deepEqual([...((await wanted([LAST])) ?? [1])], []);
  });

  test('whatever else is there is left to the disk', async () => {
    const [directory] = there;
    if (directory === undefined) assert.fail();
    for (const packets of [
      [directory, stat('sub/Dockerfile', LINK, { linkname: 'other' })],
      [directory, stat('sub/Dockerfile', FIFO)],
      [directory, stat('sub/Dockerfile', OTHER)],
      [directory, stat('sub/Dockerfile', DIRECTORY)],
      [directory, stat('sub/Dockerfile', FILE, { size: 9n })],
      [directory, stat('sub/Dockerfile', FILE, { linkname: 'sub' })],
      [directory, stat('sub/another', FILE)],
      [stat('sub', FILE)],
      [stat('other', DIRECTORY)],
      // It is longer than it was said to be.
      [...there, LAST, data(1, '123456789')],
    ])
      assert.equal(await wanted(packets), undefined);
  });

  test('a client that breaks the rules is refused', async () => {
    for (const [packets, words] of [
      [[stat('../sub', DIRECTORY)], /escape check/],
      [[...there, stat('sub', DIRECTORY)], /out of order/],
      [[...there, LAST, LAST], /behind the last one/],
      [[...there, LAST, data(0, 'x')], /invalid file request 0/],
      [[...there, LAST, data(1, 'x')], /before its end/],
      [[{ type: Packet_Type.ERR, data: Buffer.from('no') }], /error from sender: no/],
    ] as const)
      await assert.rejects(wanted(packets), words);
  });
});
