/** The fluentd driver: the forward protocol, over TCP, TLS or a unix socket. */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { internal, messageOf, unavailable } from '../../errors/engine-error.js';
import type { LoggedContainer } from '../../ports/logs.js';
import type { StreamName } from '../../ports/logs.js';
import { extraAttributes } from '../options/log-attributes.js';
import { tagOf } from '../options/log-tag.js';
import {
  badOption,
  parseBoolean,
  parseDurationMs,
  parseInteger,
  parseSize,
  type LogOptions,
} from '../options/option-values.js';
import { isTransportUrl, parseTransportUrl, splitHostPort } from './address.js';
import { dialStream, type StreamTarget } from './dial.js';
import { packArrayHead, packEntries, packMapHead, packString, packTime, unpackAck } from './message-pack.js';
import { ReconnectingStream, writeAll } from './reconnecting-stream.js';
import { ATTRIBUTE_OPTIONS, refuseUnknown, type RemoteDriver } from './remote-driver.js';
import { DEFAULT_BATCH, type RemoteRecord } from './remote-sink.js';

const OPTIONS = [
  'fluentd-address',
  'fluentd-async',
  'fluentd-async-connect',
  'fluentd-buffer-limit',
  'fluentd-max-retries',
  'fluentd-request-ack',
  'fluentd-retry-wait',
  'fluentd-sub-second-precision',
];
const LOG_KEY = packString('log');
const DEFAULT_PORT = 24224;
const DEFAULT_RETRY_MS = 1000;
/** The wait before each further attempt grows by this factor, up to a minute. */
const RETRY_GROWTH = 1.5;
const MAX_RETRY_MS = 60_000;
/** A server that acknowledges nothing for so long is asked again on another connection. */
const ACK_MS = 30_000;

export const fluentdDriver: RemoteDriver = {
  validate(options) {
    refuseUnknown('fluentd', options, [...OPTIONS, ...ATTRIBUTE_OPTIONS]);
    parseConfig(options);
  },

  async open(container, signal) {
    const { target, isAsync, isAsyncConnect, queueBytes, retryMs, maxRetries, isPrecise, wantsAck } = parseConfig(
      container.options,
    );
    const encode = createEncoder(container, isPrecise);
    if (typeof target === 'string') throw internal(`unknown network ${target}`);
    const connection = new ReconnectingStream({
      dial: (signal) => dialStream(target, signal),
      retryDelayMs: (attempt) =>
        attempt < maxRetries ? Math.min(retryMs * RETRY_GROWTH ** attempt, MAX_RETRY_MS) : undefined,
    });
    if (!isAsync && !isAsyncConnect) await connection.open(signal);
    return {
      ...DEFAULT_BATCH,
      queueBytes,
      isLossy: isAsync,
      send(records, signal) {
        const chunks = wantsAck ? records.map(() => randomBytes(16).toString('base64')) : [];
        const bytes = Buffer.concat(records.flatMap((record, index) => encode(record, chunks[index])));
        return connection.deliver(async (socket) => {
          const acknowledged = wantsAck ? acks(socket, new Set(chunks), signal) : undefined;
          // The code below waits for its failure, even if the write fails first.
          acknowledged?.catch(() => undefined);
          await writeAll(socket, bytes, signal);
          await acknowledged;
        }, signal);
      },
      close: () => connection.close(),
    };
  },
};

interface Config {
  /** A string names a network that the protocol cannot use; only a start refuses it. */
  readonly target: StreamTarget | string;
  readonly isAsync: boolean;
  readonly isAsyncConnect: boolean;
  readonly queueBytes: number;
  readonly retryMs: number;
  readonly maxRetries: number;
  readonly isPrecise: boolean;
  readonly wantsAck: boolean;
}

function parseConfig(options: LogOptions): Config {
  const target = parseAddress(options['fluentd-address'] ?? '');
  const given = <T>(name: string, parse: (text: string) => T, otherwise: T): T =>
    options[name] ? parse(options[name]) : otherwise;
  const flag = (name: string): boolean => given(name, (text) => parseBoolean(text), false);
  const queueBytes = given('fluentd-buffer-limit', (text) => parseSize(text, 1024), DEFAULT_BATCH.queueBytes);
  const retryMs = given('fluentd-retry-wait', parseDurationMs, DEFAULT_RETRY_MS);
  const maxRetries = given(
    'fluentd-max-retries',
    (text) => parseInteger(text, '', 'ParseUint'),
    Number.POSITIVE_INFINITY,
  );
  if (options['fluentd-async'] && options['fluentd-async-connect'])
    throw badOption("conflicting options: cannot specify both 'fluentd-async' and 'fluentd-async-connect");
  return {
    target,
    isAsync: flag('fluentd-async'),
    isAsyncConnect: flag('fluentd-async-connect'),
    queueBytes,
    retryMs,
    maxRetries,
    isPrecise: flag('fluentd-sub-second-precision'),
    wantsAck: flag('fluentd-request-ack'),
  };
}

function parseAddress(text: string): StreamTarget | string {
  if (text === '') return { network: 'tcp', host: '127.0.0.1', port: DEFAULT_PORT };
  try {
    const url = isTransportUrl(text) ? parseTransportUrl(text) : undefined;
    if (url?.scheme === 'unix') return { network: 'unix', path: url.path };
    if (url?.scheme === 'unixgram') return url.scheme;
    const { host, port } = splitHostPort(url?.host ?? text);
    const target = { network: 'tcp', host, port: port === undefined ? DEFAULT_PORT : parseInteger(port) } as const;
    if (url?.scheme === 'udp') return url.scheme;
    return url?.scheme === 'tcp+tls' ? { ...target, tls: {} } : target;
  } catch (error) {
    throw badOption(`invalid fluentd-address ${text}: ${messageOf(error)}`, error);
  }
}

/**
 * Encodes records as messages; the parts that are the same for all are packed once. `chunk` asks for an
 * acknowledgement.
 */
function createEncoder(
  container: LoggedContainer,
  isPrecise: boolean,
): (record: RemoteRecord, chunk: string | undefined) => Buffer[] {
  const tag = packString(tagOf(container));
  const [plain, asking] = [3, 4].map((count) => Buffer.concat([packArrayHead(count), tag])) as [Buffer, Buffer];
  const extra = extraAttributes(container);
  const fieldsOf = (stream: StreamName): { readonly count: number; readonly bytes: Buffer } => {
    // Labels and variables replace our own fields of the same name.
    const values = { container_id: container.id, container_name: `/${container.name}`, source: stream, ...extra };
    return { count: Object.keys(values).length, bytes: packEntries(values) };
  };
  const fixed = { stdout: fieldsOf('stdout'), stderr: fieldsOf('stderr') };
  const isLineReplaced = Object.hasOwn(extra, 'log');
  return (record, chunk) => {
    const { count, bytes } = fixed[record.stream];
    const line = isLineReplaced ? [] : [LOG_KEY, packString(record.line)];
    const partial = partialFields(record);
    const size = count + line.length / 2 + Object.keys(partial).length;
    const options = chunk === undefined ? [] : [packMapHead(1), packEntries({ chunk })];
    return [
      chunk === undefined ? plain : asking,
      packTime(record.timeNs, isPrecise),
      packMapHead(size),
      bytes,
      ...line,
      ...(record.piece ? [packEntries(partial)] : []),
      ...options,
    ];
  };
}

function partialFields({ piece }: RemoteRecord): Record<string, string> {
  if (!piece) return {};
  return {
    partial_message: 'true',
    partial_id: piece.id,
    partial_ordinal: String(piece.ordinal),
    partial_last: String(piece.isLast),
  };
}

/** Resolves when the server has acknowledged all chunks. */
function acks(socket: Socket, waiting: Set<string>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    let received = Buffer.alloc(0);
    const settle = (error?: unknown): void => {
      clearTimeout(timer);
      socket.removeListener('data', onData).removeListener('close', onClose);
      signal.removeEventListener('abort', onAbort);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onData = (data: Buffer): void => {
      received = Buffer.concat([received, data]);
      try {
        for (let ack = unpackAck(received); ack; ack = unpackAck(received)) {
          // One that answers without end would keep the daemon busy.
          if (!waiting.delete(ack.chunk)) throw new Error('the server has acknowledged what was not sent');
          received = received.subarray(ack.length);
        }
        if (waiting.size === 0) settle();
      } catch (error) {
        settle(error);
      }
    };
    const onClose = (): void =>
      settle(unavailable('the connection to the remote log was lost before everything was acknowledged'));
    const onAbort = (): void => settle(signal.reason);
    const timer = setTimeout(() => settle(unavailable('the remote log does not acknowledge')), ACK_MS);
    socket.on('data', onData).once('close', onClose);
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
