/** Requests as no client should send them. */
import type { Random } from './random.js';

export interface MalformedCase {
  readonly kind: string;
  /** Sent one after the other, with a turn of the event loop between. */
  readonly pieces: readonly Buffer[];
  /** The client does this when all is sent. */
  readonly ending: 'wait' | 'half-close' | 'reset' | 'close';
}

export interface Targets {
  /** Method and path of requests that are fine as such. */
  readonly routes: readonly string[];
}

type Maker = (random: Random, targets: Targets) => string;

const TOKENS = [
  'chunked',
  'identity',
  'gzip, chunked',
  'chunked, chunked',
  'xchunked',
  'chunked;q=1',
  ' chunked',
  'CHUNKED',
  '',
  'chunked\0',
  '\tchunked',
];
const LENGTHS = [
  '0',
  '1',
  '2',
  '5',
  '-1',
  '+2',
  '0x2',
  '1e3',
  '2,2',
  '2 2',
  '',
  ' 2',
  '02',
  '4294967298',
  '18446744073709551618',
  '99999999999999999999999',
  '٢',
  '2\0',
];
const CHUNK_SIZES = [
  '2',
  '0',
  '00',
  'zz',
  '-2',
  '0x2',
  'ffffffffffffffff',
  '10000000000000002',
  '2;a=b',
  '2 ',
  ' 2',
  '',
  'fffffff',
  '2\0',
];
const PATH_TAILS = [
  '%',
  '%0',
  '%zz',
  '%00',
  '%ff',
  '%c0%ae',
  '%2e%2e%2f',
  '/../..',
  '//',
  '/./',
  '?%',
  '?a=%zz',
  '?a=b&&=&',
];
const REQUEST_LINES = [
  'GET  /_ping HTTP/1.1',
  'GET /_ping',
  'GET /_ping HTTP/1.0',
  'GET /_ping HTTP/2.0',
  'GET /_ping http/1.1',
  ' GET /_ping HTTP/1.1',
  'GET /_ping HTTP/1.1 ',
  'GET http://x/_ping HTTP/1.1',
  'CONNECT x:1 HTTP/1.1',
  'OPTIONS * HTTP/1.1',
  'PRI * HTTP/2.0',
  '\0',
  'get /_ping HTTP/1.1',
  '\r\n\r\nGET /_ping HTTP/1.1',
  'G'.repeat(5000),
];
const CONNECTIONS = ['Upgrade', 'upgrade, close', 'close', 'keep-alive', 'Upgrade, HTTP2-Settings'];
const UPGRADES = ['tcp', 'h2c', 'websocket', 'TLS/1.0', 'h2c, websocket', '', 'tcp\0', 'x'.repeat(1000)];
function chunk(r: Random): string {
  return `${r.of(CHUNK_SIZES)}${r.of(['\r\n', '\n', '\r', ''])}{}${r.of(['\r\n', '\n', 'XX', ''])}`;
}
const SMUGGLED =
  'POST /volumes/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n' +
  '{"Name":"smuggled"}';

const line = (random: Random, { routes }: Targets): string => `${random.of(routes)} HTTP/1.1\r\nHost: x\r\n`;
const json = 'Content-Type: application/json\r\n';

const MAKERS: Readonly<Record<string, Maker>> = {
  'length and encoding': (r, t) => {
    const both = [`Content-Length: ${r.of(LENGTHS)}\r\n`, `Transfer-Encoding: ${r.of(TOKENS)}\r\n`];
    if (r.chance(0.5)) both.reverse();
    return `${line(r, t)}${json}${both.join('')}\r\n${r.of(['0\r\n\r\n', '2\r\n{}\r\n0\r\n\r\n', '{}'])}${SMUGGLED}`;
  },
  'several lengths': (r, t) =>
    `${line(r, t)}${json}` +
    `${Array.from({ length: 1 + r.below(3) }, () => `Content-Length: ${r.of(LENGTHS)}\r\n`).join('')}\r\n{}${SMUGGLED}`,
  'several encodings': (r, t) =>
    `${line(r, t)}${json}` +
    Array.from({ length: 1 + r.below(3) }, () => `Transfer-Encoding: ${r.of(TOKENS)}\r\n`).join('') +
    `\r\n2\r\n{}\r\n0\r\n\r\n${SMUGGLED}`,
  'bad chunks': (r, t) =>
    `${line(r, t)}${json}Transfer-Encoding: chunked\r\n\r\n` +
    `${Array.from({ length: 1 + r.below(4) }, () => chunk(r)).join('')}0\r\n\r\n${SMUGGLED}`,
  'header flood': (r, t) =>
    line(r, t) +
    `${Array.from({ length: 50 + r.below(400) }, (_, i) => `X-${i}: ${'v'.repeat(r.below(50))}\r\n`).join('')}\r\n`,
  'giant header': (r, t) => `${line(r, t)}X-Large: ${'v'.repeat(1000 + r.below(200_000))}\r\n\r\n`,
  'giant url': (r) => `GET /${'a/'.repeat(r.below(60_000))}?${'b'.repeat(r.below(30_000))} HTTP/1.1\r\nHost: x\r\n\r\n`,
  'bytes in the url': (r, t) =>
    `${r.of(t.routes)}${r.bytes(1 + r.below(20)).toString('latin1')} HTTP/1.1\r\nHost: x\r\n\r\n`,
  'escapes in the url': (r, t) => `${r.of(t.routes)}${r.of(PATH_TAILS)} HTTP/1.1\r\nHost: x\r\n\r\n`,
  'NUL in a header': (r, t) => `${line(r, t)}X-A: b\0c\r\nX\0Y: d\r\n\r\n`,
  'odd lines': (r, t) =>
    line(r, t) +
    r.of([
      ' folded\r\n\r\n',
      'no colon\r\n\r\n',
      ': no name\r\n\r\n',
      'Name : x\r\n\r\n',
      'A: b\rC: d\r\n\r\n',
      'A: b\n\n',
      '\r',
      'Host: y\r\n\r\n',
      'Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}',
      'Expect: magic\r\n\r\n',
    ]),
  'odd request line': (r) => `${r.of(REQUEST_LINES)}\r\nHost: x\r\n\r\n`,
  pipelined: (r, t) =>
    Array.from({ length: 1 + r.below(30) }, () => `${line(r, t)}${json}Content-Length: 2\r\n\r\n{}`).join(''),
  'half a request': (r, t) => {
    const whole = `${line(r, t)}${json}Content-Length: 1000\r\n\r\n${'{'.repeat(1000)}`;
    return whole.slice(0, r.below(whole.length));
  },
  'half a chunk': (r, t) =>
    `${line(r, t)}${json}Transfer-Encoding: chunked\r\n\r\n${'5\r\n{"a":\r\n'.slice(0, r.below(11))}`,
  upgrade: (r, t) =>
    `${line(r, t)}Connection: ${r.of(CONNECTIONS)}` +
    `\r\nUpgrade: ${r.of(UPGRADES)}\r\n` +
    (r.chance(0.5) ? 'Sec-WebSocket-Key: AA==\r\nSec-WebSocket-Version: 13\r\n' : '') +
    (r.chance(0.3) ? 'Content-Length: 2\r\n' : '') +
    `\r\n{}${r.bytes(r.below(200)).toString('latin1')}`,
  noise: (r) => r.bytes(1 + r.below(3000)).toString('latin1'),
  'TLS hello': (r) => `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${r.bytes(300).toString('latin1')}`,
  mutated: (r, t) => {
    const bytes = Buffer.from(`${line(r, t)}${json}Content-Length: 2\r\n\r\n{}`, 'latin1');
    for (let i = r.below(8); i >= 0; i--) bytes[r.below(bytes.length)] = r.below(256);
    return bytes.toString('latin1');
  },
};

export function malformedCase(random: Random, targets: Targets): MalformedCase {
  const kind = random.of(Object.keys(MAKERS));
  const bytes = Buffer.from(MAKERS[kind]?.(random, targets) ?? '', 'latin1');
  const pieces: Buffer[] = [];
  const isTrickled = random.chance(0.3);
  for (let at = 0; at < bytes.length;) {
    const size = isTrickled ? 1 + random.below(Math.max(20, bytes.length / 10)) : bytes.length;
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return { kind, pieces, ending: random.of(['wait', 'half-close', 'half-close', 'reset', 'close'] as const) };
}
