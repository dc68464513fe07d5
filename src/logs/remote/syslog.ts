/** The syslog driver: RFC 3164, RFC 5424 and the form of a local /dev/log, over UDP, TCP, TLS and unix sockets. */
import { hostname } from 'node:os';
import type { ConnectionOptions } from 'node:tls';
import { internal, messageOf } from '../../errors/engine-error.js';
import { atNamedSocket } from '../../sys/net/named-socket.js';
import { UnixDatagram } from '../../sys/net/unix-datagram.js';
import { readCertificates } from '../options/certificate-file.js';
import { tagOf } from '../options/log-tag.js';
import { badOption, type LogOptions } from '../options/option-values.js';
import { isTransportUrl, parseTransportUrl, splitHostPort } from './address.js';
import { dialStream, type StreamTarget } from './dial.js';
import { ReconnectingStream, writeAll } from './reconnecting-stream.js';
import { ATTRIBUTE_OPTIONS, refuseUnknown, type RemoteDriver } from './remote-driver.js';
import { DEFAULT_BATCH, type RemoteRecord, type RemoteSink } from './remote-sink.js';
import { UdpSender } from './udp-sender.js';

const OPTIONS = [
  'syslog-address',
  'syslog-facility',
  'syslog-format',
  'syslog-tls-ca-cert',
  'syslog-tls-cert',
  'syslog-tls-key',
  'syslog-tls-skip-verify',
];
const FACILITIES = [
  'kern',
  'user',
  'mail',
  'daemon',
  'auth',
  'syslog',
  'lpr',
  'news',
  'uucp',
  'cron',
  'authpriv',
  'ftp',
  '',
  '',
  '',
  '',
  'local0',
  'local1',
  'local2',
  'local3',
  'local4',
  'local5',
  'local6',
  'local7',
];
const FORMATS = ['', 'rfc3164', 'rfc5424', 'rfc5424micro'];
const DEFAULT_PORT = '514';
/** A machine's own syslog listens at one of these paths. */
const LOCAL_PATHS = ['/dev/log', '/var/run/syslog', '/var/run/log'];
const SEVERITY = { stderr: 3, stdout: 6 } as const;
/** A server that restarts is back after these attempts; lines wait meanwhile. */
const RETRY_MS = [0, 100, 200, 400, 800, 1600];
const NEWLINE = Buffer.from('\n');
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** Returns the text before the line. */
type Format = (priority: number, timeNs: bigint) => string;

export const syslogDriver: RemoteDriver = {
  validate(options) {
    refuseUnknown('syslog', options, [...OPTIONS, ...ATTRIBUTE_OPTIONS]);
    parseAddress(options['syslog-address'] ?? '');
    parseFacility(options['syslog-facility'] ?? '');
    if (!FORMATS.includes(options['syslog-format'] ?? '')) throw badOption('Invalid syslog format');
  },

  socketPath(options) {
    const address = parseAddress(options['syslog-address'] ?? '');
    return address && 'path' in address ? address.path : undefined;
  },

  async open(container, signal) {
    const { options } = container;
    const address = parseAddress(options['syslog-address'] ?? '');
    const facility = parseFacility(options['syslog-facility'] ?? '');
    const format = createFormat(options['syslog-format'] ?? '', tagOf(container));
    const isCounted = address?.scheme === 'tcp+tls' && (options['syslog-format'] ?? '').startsWith('rfc5424');
    /** Renders records as messages. Empty lines are left out, because syslog cannot carry them. */
    const messages = (records: readonly RemoteRecord[]): Buffer[] =>
      records.flatMap((record) =>
        record.line.length === 0
          ? []
          : [frame(format(facility * 8 + SEVERITY[record.stream], record.timeNs), record.line, isCounted)],
      );
    if (!address) return openLocal(messages, signal);
    switch (address.scheme) {
      case 'udp': {
        const { host, port } = address;
        return datagrams(await UdpSender.open(host, port), messages);
      }
      case 'unixgram':
        return datagrams(await openDatagram(address.path), messages);
      case 'unix':
        return stream({ network: 'unix', path: address.path }, messages, signal);
      default: {
        const { host, port } = address;
        return stream(
          { network: 'tcp', host, port, ...(address.scheme === 'tcp+tls' ? { tls: await tlsOptions(options) } : {}) },
          messages,
          signal,
        );
      }
    }
  },
};

type Address =
  | { readonly scheme: 'unix' | 'unixgram'; readonly path: string }
  | { readonly scheme: 'tcp' | 'tcp+tls' | 'udp'; readonly host: string; readonly port: number };
type Messages = (records: readonly RemoteRecord[]) => Buffer[];

function parseAddress(text: string): Address | undefined {
  if (text === '') return undefined;
  if (!isTransportUrl(text)) throw badOption(`syslog-address should be in form proto://address, got ${text}`);
  const { scheme, host: hostPort, path } = parseTransportUrl(text);
  if (scheme === 'unix' || scheme === 'unixgram') return { scheme, path };
  const { host, port = DEFAULT_PORT } = splitHostPort(hostPort);
  return { scheme: scheme as 'tcp' | 'tcp+tls' | 'udp', host, port: Number(port) };
}

function parseFacility(text: string): number {
  if (text === '') return FACILITIES.indexOf('daemon');
  const known = FACILITIES.indexOf(text);
  if (known >= 0) return known;
  if (!/^\+?\d+$/.test(text) || Number(text) >= FACILITIES.length) throw badOption('invalid syslog facility');
  return Number(text);
}

async function tlsOptions(options: LogOptions): Promise<ConnectionOptions> {
  const read = async (what: string, path: string | undefined): Promise<Buffer | undefined> => {
    if (!path) return undefined;
    try {
      return await readCertificates(path);
    } catch (error) {
      throw badOption(`could not read ${what} ${JSON.stringify(path)}: ${messageOf(error)}`, error);
    }
  };
  const ca = await read('CA certificate', options['syslog-tls-ca-cert']);
  const cert = await read('certificate', options['syslog-tls-cert']);
  const key = await read('key', options['syslog-tls-key']);
  return {
    ...(ca && { ca }),
    ...(cert && { cert }),
    ...(key && { key }),
    rejectUnauthorized: options['syslog-tls-skip-verify'] === undefined,
  };
}

async function openLocal(messages: Messages, signal: AbortSignal): Promise<RemoteSink> {
  for (const path of LOCAL_PATHS) {
    try {
      return datagrams(await openDatagram(path), messages);
    } catch {
      // The socket is missing, or is a stream socket.
    }
    try {
      return await stream({ network: 'unix', path }, messages, signal);
    } catch {
      // The next path is tried.
    }
  }
  throw internal('Unix syslog delivery error');
}

interface DatagramSender {
  send(datagram: Buffer, signal: AbortSignal): Promise<void>;
  close(): void;
}

/** Sends datagrams to a local server, which has a new socket file after a restart. */
async function openDatagram(path: string): Promise<DatagramSender> {
  const connect = (): Promise<UnixDatagram> => atNamedSocket(path, (place) => UnixDatagram.open(place));
  let socket = await connect();
  return {
    async send(datagram, signal) {
      try {
        await socket.send(datagram, signal);
      } catch {
        signal.throwIfAborted();
        socket.close();
        socket = await connect();
        await socket.send(datagram, signal);
      }
    },
    close: () => socket.close(),
  };
}

function datagrams(sender: DatagramSender, messages: Messages): RemoteSink {
  return {
    ...DEFAULT_BATCH,
    // With one record at a time, a failure loses one line and not a batch.
    batchRecords: 1,
    async send(records, signal) {
      for (const message of messages(records)) await sender.send(message, signal);
    },
    close: () => sender.close(),
  };
}

async function stream(target: StreamTarget, messages: Messages, signal: AbortSignal): Promise<RemoteSink> {
  const connection = new ReconnectingStream({
    dial: (signal) => dialStream(target, signal),
    retryDelayMs: (attempt) => RETRY_MS[attempt],
  });
  await connection.open(signal);
  return {
    ...DEFAULT_BATCH,
    send: (records, signal) => {
      const bytes = Buffer.concat(messages(records));
      return bytes.length === 0
        ? Promise.resolve()
        : connection.deliver((socket) => writeAll(socket, bytes, signal), signal);
    },
    close: () => connection.close(),
  };
}

/** Frames a message: RFC 5425 counts octets, elsewhere a newline ends it. */
function frame(head: string, line: Buffer, isCounted: boolean): Buffer {
  const bytes = Buffer.from(head);
  return Buffer.concat([Buffer.from(isCounted ? `${bytes.length + line.length + 1} ` : ''), bytes, line, NEWLINE]);
}

function createFormat(name: string, tag: string): Format {
  const host = hostname();
  const { pid } = process;
  switch (name) {
    case 'rfc3164':
      return (priority, timeNs) => `<${priority}>${stamp(timeNs)} ${host} ${tag}[${pid}]: `;
    case 'rfc5424':
    case 'rfc5424micro':
      return (priority, timeNs) =>
        `<${priority}>1 ${rfc3339(timeNs, name === 'rfc5424micro')} ${host} ${tag} ${pid} ${tag} - `;
    default:
      return (priority, timeNs) => `<${priority}>${stamp(timeNs)} ${tag}[${pid}]: `;
  }
}

const two = (value: number): string => String(value).padStart(2, '0');

/** Formats `Jan  2 15:04:05` in local time. */
function stamp(timeNs: bigint): string {
  const time = new Date(Number(timeNs / 1_000_000n));
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':');
  return `${MONTHS[time.getMonth()]} ${String(time.getDate()).padStart(2)} ${clock}`;
}

/** Formats `2006-01-02T15:04:05+02:00` in local time, with microseconds if asked for. */
function rfc3339(timeNs: bigint, isMicro: boolean): string {
  const time = new Date(Number(timeNs / 1_000_000n));
  const minutes = -time.getTimezoneOffset();
  const zone =
    minutes === 0
      ? 'Z'
      : `${minutes < 0 ? '-' : '+'}${two(Math.trunc(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  const local = new Date(time.getTime() + minutes * 60_000).toISOString().slice(0, 19);
  return `${local}${isMicro ? `.${String((timeNs / 1000n) % 1_000_000n).padStart(6, '0')}` : ''}${zone}`;
}
