/** The gelf driver: Graylog's format over UDP, compressed and in chunks, or over TCP. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { deflateSync, gzipSync } from 'node:zlib';
import { internal, invalid, messageOf } from '../../errors/engine-error.js';
import type { LoggedContainer } from '../../ports/logs.js';
import { extraAttributes } from '../options/log-attributes.js';
import { tagOf } from '../options/log-tag.js';
import { badOption, parseInteger, type LogOptions } from '../options/option-values.js';
import { isTransportUrl, parseTransportUrl, splitHostPort } from './address.js';
import { dialStream } from './dial.js';
import { encodeBatch } from './encode-batch.js';
import { ReconnectingStream, writeAll } from './reconnecting-stream.js';
import { ATTRIBUTE_OPTIONS, type RemoteDriver } from './remote-driver.js';
import { DEFAULT_BATCH, type RemoteRecord, type RemoteSink } from './remote-sink.js';
import { UdpSender } from './udp-sender.js';

/** A datagram of so many bytes passes nearly every network in one piece. */
const CHUNK_BYTES = 1420;
const CHUNK_HEADER_BYTES = 12;
const CHUNK_DATA_BYTES = CHUNK_BYTES - CHUNK_HEADER_BYTES;
const MAX_CHUNKS = 128;
const LEVEL = { stderr: 3, stdout: 6 } as const;
/** The default level is low, because compression costs time with every line. */
const DEFAULT_LEVEL = 1;

export const gelfDriver: RemoteDriver = {
  validate(options) {
    const { scheme } = parseAddress(options['gelf-address'] ?? '');
    for (const [name, value] of Object.entries(options)) {
      switch (name) {
        case 'gelf-compression-level':
        case 'gelf-compression-type': {
          if (scheme !== 'udp') throw badOption('compression is only supported on UDP');
          const isGood =
            name === 'gelf-compression-type' ? ['gzip', 'zlib', 'none'].includes(value) : /^(-1|\+?\d)$/.test(value);
          if (!isGood)
            throw badOption(
              `unknown value ${JSON.stringify(value)} for log opt ${JSON.stringify(name)} for gelf log driver`,
            );
          break;
        }
        case 'gelf-tcp-max-reconnect':
        case 'gelf-tcp-reconnect-delay':
          if (scheme !== 'tcp') throw badOption(`${JSON.stringify(name)} is only valid for TCP`);
          if (!/^\+?\d+$/.test(value)) throw badOption(`${JSON.stringify(name)} must be a positive integer`);
          break;
        default:
          if (name !== 'gelf-address' && !ATTRIBUTE_OPTIONS.some((known) => known === name))
            throw badOption(`unknown log opt ${JSON.stringify(name)} for gelf log driver`);
      }
    }
  },

  async open(container, signal) {
    const { options } = container;
    const { scheme, host, port } = parseAddress(options['gelf-address'] ?? '');
    const encode = createEncoder(container);
    try {
      if (scheme === 'udp') return udp(await UdpSender.open(host, port), encode, createCompression(options));
      return await tcp(host, port, options, encode, signal);
    } catch (error) {
      throw internal(`gelf: cannot connect to GELF endpoint: ${host}:${port} ${messageOf(error)}`, { cause: error });
    }
  },
};

function parseAddress(text: string): { readonly scheme: 'udp' | 'tcp'; readonly host: string; readonly port: number } {
  if (text === '') throw badOption('gelf-address is a required parameter');
  if (!isTransportUrl(text)) throw badOption(`gelf-address should be in form proto://address, got ${text}`);
  const { scheme, host: hostPort } = parseTransportUrl(text);
  if (scheme !== 'udp' && scheme !== 'tcp') throw badOption('gelf: endpoint needs to be TCP or UDP');
  const { host, port } = splitHostPort(hostPort);
  if (port === undefined) throw badOption('gelf: please provide gelf-address as proto://host:port');
  return { scheme, host, port: Number(port) };
}

/** Renders records as JSON; the fields that are the same for all are rendered once. */
function createEncoder(container: LoggedContainer): (record: RemoteRecord) => string {
  const extra = new Map<string, unknown>([
    ['_container_id', container.id],
    ['_container_name', container.name],
    ['_image_id', container.imageId ?? ''],
    ['_image_name', container.imageName],
    ['_command', container.command?.join(' ') ?? ''],
    ['_tag', tagOf(container)],
    ['_created', container.created ?? ''],
  ]);
  for (const [name, value] of Object.entries(extraAttributes(container)))
    extra.set(name.startsWith('_') ? name : `_${name}`, value);
  const rest = JSON.stringify(Object.fromEntries([...extra].sort(([a], [b]) => (a < b ? -1 : 1)))).slice(1);
  const host = JSON.stringify(hostname());
  return ({ stream, timeNs, line }) =>
    `{"version":"1.1","host":${host},"short_message":${JSON.stringify(line.toString())},` +
    `"timestamp":${Number(timeNs / 1_000_000n) / 1000},"level":${LEVEL[stream]},${rest}`;
}

function createCompression(options: LogOptions): (message: string) => Buffer {
  const level = parseInteger(options['gelf-compression-level'] ?? String(DEFAULT_LEVEL));
  switch (options['gelf-compression-type'] ?? 'gzip') {
    case 'none':
      return (message) => Buffer.from(message);
    case 'zlib':
      return (message) => deflateSync(message, { level });
    default:
      return (message) => gzipSync(message, { level });
  }
}

function udp(
  sender: UdpSender,
  encode: (record: RemoteRecord) => string,
  compress: (message: string) => Buffer,
): RemoteSink {
  return {
    ...DEFAULT_BATCH,
    // With one record at a time, a failure loses one line and not a batch.
    batchRecords: 1,
    async send(records) {
      // The server takes no empty messages.
      for (const record of records.filter(({ line }) => line.length > 0))
        for (const datagram of chunks(compress(encode(record)))) await sender.send(datagram);
    },
    close: () => sender.close(),
  };
}

/** Returns one datagram, or numbered pieces that share an ID. */
function chunks(message: Buffer): Buffer[] {
  if (message.length <= CHUNK_BYTES) return [message];
  const count = Math.ceil(message.length / CHUNK_DATA_BYTES);
  if (count > MAX_CHUNKS)
    throw invalid(`gelf: cannot send GELF message: it needs ${count} chunks, and there may be ${MAX_CHUNKS}`);
  const id = randomBytes(8);
  return Array.from({ length: count }, (_, index) =>
    Buffer.concat([
      Buffer.from([0x1e, 0x0f]),
      id,
      Buffer.from([index, count]),
      message.subarray(index * CHUNK_DATA_BYTES, (index + 1) * CHUNK_DATA_BYTES),
    ]),
  );
}

async function tcp(
  host: string,
  port: number,
  options: LogOptions,
  encode: (record: RemoteRecord) => string,
  signal: AbortSignal,
): Promise<RemoteSink> {
  const attempts = parseInteger(options['gelf-tcp-max-reconnect'] ?? '3');
  const delayMs = parseInteger(options['gelf-tcp-reconnect-delay'] ?? '1') * 1000;
  const connection = new ReconnectingStream({
    dial: (signal) => dialStream({ network: 'tcp', host, port }, signal),
    retryDelayMs: (attempt) => (attempt >= attempts ? undefined : attempt === 0 ? 0 : delayMs),
  });
  const encodeNonEmpty = (record: RemoteRecord): string => (record.line.length === 0 ? '' : `${encode(record)}\0`);
  await connection.open(signal);
  return {
    ...DEFAULT_BATCH,
    async send(records, signal) {
      const bytes = await encodeBatch(records, encodeNonEmpty, signal);
      if (bytes.length > 0) await connection.deliver((socket) => writeAll(socket, bytes, signal), signal);
    },
    close: () => connection.close(),
  };
}
