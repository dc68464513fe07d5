import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { decode, encode } from './grpc-messages.js';
import { readPiece, requestPacket } from './packets.js';
import { SolveRequestSchema } from './proto/gen/control_pb.js';
import { Packet_Type, PacketSchema } from './proto/gen/session_pb.js';

const NUMBERS = [0, 1, 127, 128, 16_383, 16_384, 2_000_000, 2 ** 31, 2 ** 32 - 1];

test('pieces are read as the library reads them, in any order of the fields', () => {
  for (const id of NUMBERS) {
    for (const data of [Buffer.alloc(0), Buffer.from('abc'), Buffer.alloc(40_000, 7)]) {
      const packet = encode(PacketSchema, { type: Packet_Type.DATA, id, data });
      assert.deepEqual(readPiece(packet), { id, data });
    }
  }
  assert.deepEqual(readPiece(Buffer.from('220161180308021805', 'hex')), { id: 5, data: Buffer.from('a') });
});

test('other packets, and what is none, are left to the library', () => {
  const others = [
    encode(PacketSchema, { type: Packet_Type.STAT, stat: { path: 'a' } }),
    encode(PacketSchema, { type: Packet_Type.STAT }),
    encode(PacketSchema, { type: Packet_Type.ERR, data: Buffer.from('failed') }),
    encode(PacketSchema, { type: Packet_Type.FIN }),
    ...['08', '0802180122', '08021801220261', '080218ffffffffff01', '0802ff', '08021a00', '080218ffffffff7f'].map(
      (hex) => Buffer.from(hex, 'hex'),
    ),
  ];
  for (const other of others) assert.equal(readPiece(other), undefined, other.toString('hex'));
});

test('requests are read by the library', () => {
  for (const id of NUMBERS) {
    const { type, id: read } = decode(PacketSchema, requestPacket(id));
    assert.deepEqual([type, read], [Packet_Type.REQ, id]);
  }
});

test('messages of very many fields are refused, wherever these are, and large ones are not', () => {
  const inside = (field: number, bytes: Uint8Array): Uint8Array =>
    new BinaryWriter().tag(field, WireType.LengthDelimited).bytes(bytes).finish();
  const many = (field: number, count: number): Buffer => Buffer.alloc(2 * count, inside(field, Buffer.alloc(0)));
  const [definition, frontendAttrs, frontendInputs, exporters] = [2, 7, 10, 13];
  assert.equal(decode(SolveRequestSchema, many(exporters, 40_000)).exporters.length, 40_000);
  const large = inside(definition, inside(1, Buffer.alloc(1_000_000)));
  assert.equal(decode(SolveRequestSchema, large).definition?.def[0]?.length, 1_000_000);
  const most = 300_001;
  for (const bytes of [
    many(frontendAttrs, most),
    inside(definition, many(1, most)),
    inside(frontendInputs, inside(2, many(1, most))),
  ])
    assert.throws(() => decode(SolveRequestSchema, bytes), /a message of the client has more than 300000 fields/);
});
