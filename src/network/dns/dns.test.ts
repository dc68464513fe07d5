import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Endpoint } from '../../ports/network.js';
import { buildReply, encodeName, parseQuery, RCODE, TYPE, type Query } from './message.js';
import { Names } from './names.js';
import { frame, Frames } from './stream-frames.js';

function queryBytes(name: string, type: number, additional: Buffer = Buffer.alloc(0)): Buffer {
  const header = Buffer.from([0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, additional.length > 0 ? 1 : 0]);
  return Buffer.concat([header, encodeName(name), Buffer.from([0, type, 0, 1]), additional]);
}

function query(name: string, type: number, additional?: Buffer): Query {
  const parsed = parseQuery(queryBytes(name, type, additional));
  assert.ok(parsed && parsed !== 'bad');
  return parsed;
}

const opt = Buffer.from([0, 0, 41, 0x10, 0x00, 0, 0, 0, 0, 0, 0]);

test('questions', () => {
  assert.deepEqual(
    [
      query('Web.Example', TYPE.a).name,
      query('x', TYPE.aaaa).type,
      query('x', TYPE.a).ednsBytes,
      query('x', TYPE.a, opt).ednsBytes,
    ],
    ['web.example', TYPE.aaaa, undefined, 4096],
  );
  assert.equal(parseQuery(Buffer.alloc(5)), undefined);
  const reply = queryBytes('x', 1);
  reply.writeUInt16BE(0x8180, 2);
  assert.equal(parseQuery(reply), undefined);
  const whole = queryBytes('web.example', 1);
  for (let length = 12; length < whole.length; length++)
    assert.equal(parseQuery(whole.subarray(0, length)), 'bad', String(length));
  const pointer = Buffer.concat([whole.subarray(0, 12), Buffer.from([0xc0, 0x0c, 0, 1, 0, 1])]);
  assert.equal(parseQuery(pointer), 'bad');
});

test('replies are cut to what the client takes', () => {
  const many = Array.from({ length: 60 }, (_, index) => ({ type: TYPE.a, data: Buffer.from([10, 0, 0, index]) }));
  const small = buildReply(query('web', TYPE.a), RCODE.ok, many, false);
  assert.ok(small.length <= 512);
  assert.equal(small.readUInt16BE(2) & 0x0200, 0x0200);
  assert.equal(small.length, 12 + 5 + 4 + small.readUInt16BE(6) * 16);
  const large = buildReply(query('web', TYPE.a, opt), RCODE.ok, many, false);
  assert.deepEqual([large.readUInt16BE(2), large.readUInt16BE(6), large.readUInt16BE(10)], [0x8180, 60, 1]);
  assert.equal(buildReply(query('web', TYPE.a), RCODE.ok, many, true).readUInt16BE(6), 60);
  assert.equal(buildReply(query('web', TYPE.a), RCODE.serverFailure, [], false).readUInt16BE(2), 0x8182);
});

function endpoint(id: string, network: string, names: readonly string[], ipv4: string, ipv6 = ''): Endpoint {
  return {
    networkId: `id-${network}`,
    networkName: network,
    endpointId: id,
    macAddress: '',
    ipv4,
    ipv4PrefixLength: 24,
    gateway: '',
    ipv6,
    ipv6PrefixLength: 64,
    ipv6Gateway: '',
    interfaceName: 'eth0',
    aliases: names.slice(1),
    dnsNames: names,
    links: {},
    gatewayPriority: 0,
  };
}

test('names of endpoints', () => {
  const names = new Names();
  const view = new Map(
    ['back', 'front'].map((networkName) => [
      networkName,
      { endpoint: { networkId: `id-${networkName}`, networkName, links: { store: 'Web-2' } } },
    ]),
  );
  const one = endpoint('1', 'back', ['web-1', 'Web'], '10.0.0.2', 'fd00::2');
  const two = endpoint('2', 'back', ['web-2', 'web'], '10.0.0.3');
  const other = endpoint('3', 'hidden', ['db'], '10.9.0.2');
  for (const each of [one, two, other]) names.add(each);
  const addresses = (name: string, type: number = TYPE.a): string[] | undefined =>
    names
      .answer(view, name, type)
      ?.map(({ data }) => data.toString('hex'))
      .sort();
  assert.deepEqual(addresses('web-1'), ['0a000002']);
  assert.deepEqual(addresses('web'), ['0a000002', '0a000003']);
  assert.deepEqual(addresses('store'), ['0a000003']);
  // Every JavaScript object has this name.
  assert.equal(addresses('constructor'), undefined);
  assert.deepEqual(addresses('web.back'), ['0a000002', '0a000003']);
  assert.deepEqual(addresses('web', TYPE.aaaa), ['fd000000000000000000000000000002']);
  // The name exists without such an address, so nobody else is asked.
  assert.deepEqual(addresses('web-2', TYPE.aaaa), []);
  assert.equal(addresses('web.front'), undefined);
  assert.equal(addresses('db'), undefined);
  assert.equal(addresses('example.org'), undefined);
  assert.deepEqual(names.answer(view, '2.0.0.10.in-addr.arpa', TYPE.ptr), [
    { type: TYPE.ptr, data: encodeName('web-1.back') },
  ]);
  assert.deepEqual(names.answer(view, `2.${'0.'.repeat(27)}0.0.d.f.ip6.arpa`, TYPE.ptr), [
    { type: TYPE.ptr, data: encodeName('web-1.back') },
  ]);
  assert.equal(names.answer(view, '2.0.9.10.in-addr.arpa', TYPE.ptr), undefined);
  names.remove(one);
  assert.deepEqual(addresses('web'), ['0a000003']);
  assert.equal(addresses('web-1'), undefined);
  names.remove(two);
  assert.equal(addresses('web'), undefined);
});

test('messages on a stream in any pieces', () => {
  const frames = new Frames();
  const bytes = Buffer.concat([frame(Buffer.from('one')), frame(Buffer.from('second'))]);
  const taken = [...bytes].flatMap((byte) => frames.take(Buffer.of(byte)));
  assert.deepEqual(taken.map(String), ['one', 'second']);
  assert.deepEqual(frames.take(bytes).map(String), ['one', 'second']);
});
