/** Servers that remote log drivers send to, small but on real sockets. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';
import { gunzipSync, inflateSync } from 'node:zlib';

export interface Receiver {
  readonly port: number;
  /** All bytes so far, of datagrams one behind the other. */
  readonly received: () => Buffer;
  readonly connections: () => number;
  close(): Promise<void>;
}

export interface StreamReceiver extends Receiver {
  /** Stops reading, so that the sender's buffers fill. */
  stall(): void;
  resume(): void;
  /** Drops the connections; others may come. */
  disconnect(): void;
  /** Stops listening, too, until `listen`. */
  leave(): Promise<void>;
  listen(): Promise<void>;
}

/** A stream server on loopback, or on the unix socket `path`. `answer` may say something to each piece. */
export async function streamReceiver(
  options: {
    readonly tls?: TlsOptions;
    readonly path?: string;
    readonly answer?: (data: Buffer, socket: Socket) => void;
  } = {},
): Promise<StreamReceiver> {
  const chunks: Buffer[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  let isStalled = false;
  const onConnection = (socket: Socket): void => {
    connections++;
    sockets.add(socket);
    socket.on('data', (data: Buffer) => {
      chunks.push(data);
      options.answer?.(data, socket);
    });
    if (isStalled) socket.pause();
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
  };
  let server: Server;
  let port = 0;
  const listen = async (): Promise<void> => {
    server = options.tls ? createTlsServer(options.tls, onConnection) : createServer(onConnection);
    if (options.path === undefined) server.listen(port, '127.0.0.1');
    else server.listen(options.path);
    await once(server, 'listening');
    if (options.path === undefined) port = (server.address() as AddressInfo).port;
  };
  const disconnect = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  const leave = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    disconnect();
    await closed;
  };
  await listen();
  return {
    get port() {
      return port;
    },
    received: () => Buffer.concat(chunks),
    connections: () => connections,
    stall() {
      isStalled = true;
      for (const socket of sockets) socket.pause();
    },
    resume() {
      isStalled = false;
      for (const socket of sockets) socket.resume();
    },
    disconnect,
    leave,
    listen,
    close: leave,
  };
}

export interface DatagramReceiver extends Receiver {
  readonly datagrams: () => readonly Buffer[];
}

export async function udpReceiver(): Promise<DatagramReceiver> {
  const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20 });
  const datagrams: Buffer[] = [];
  socket.on('message', (data) => datagrams.push(data));
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    port: socket.address().port,
    datagrams: () => datagrams,
    received: () => Buffer.concat(datagrams),
    connections: () => 0,
    close: async () => {
      const closed = once(socket, 'close');
      socket.close();
      await closed;
    },
  };
}

export interface HttpReceiver {
  readonly url: string;
  readonly requests: readonly {
    readonly method: string;
    readonly path: string;
    readonly headers: IncomingMessage['headers'];
    readonly body: string;
  }[];
  /** Status of the next answers. */
  status: number;
  close(): Promise<void>;
}

export async function httpReceiver(): Promise<HttpReceiver> {
  const requests: HttpReceiver['requests'][number][] = [];
  const server = createHttpServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.once('end', () => {
      const bytes = Buffer.concat(chunks);
      const body = (request.headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes).toString();
      requests.push({ method: request.method ?? '', path: request.url ?? '', headers: request.headers, body });
      response.writeHead(receiver.status).end('{"text":"answer"}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const receiver: HttpReceiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    status: 200,
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
  return receiver;
}

/** GELF messages of datagrams: chunks put together, uncompressed. */
export function gelfMessages(datagrams: readonly Buffer[]): Record<string, unknown>[] {
  const chunked = new Map<string, Buffer[]>();
  const whole: Buffer[] = [];
  for (const datagram of datagrams) {
    if (datagram[0] !== 0x1e || datagram[1] !== 0x0f) {
      whole.push(datagram);
      continue;
    }
    const id = datagram.toString('hex', 2, 10);
    const pieces = chunked.get(id) ?? [];
    chunked.set(id, pieces);
    pieces[datagram[10] ?? 0] = datagram.subarray(12);
    if (pieces.filter(Boolean).length === datagram[11]) whole.push(Buffer.concat(pieces));
  }
  return whole.map((message) => {
    const plain = message[0] === 0x1f ? gunzipSync(message) : message[0] === 0x78 ? inflateSync(message) : message;
    return JSON.parse(plain.toString()) as Record<string, unknown>;
  });
}

/**
 * A value of MessagePack, as far as fluentd's forward protocol uses it, and where it ends; undefined when it is
 * incomplete.
 */
export function unpack(bytes: Buffer, at = 0): { readonly value: unknown; readonly end: number } | undefined {
  const type = bytes[at];
  if (type === undefined) return undefined;
  const lengthOf = (size: number): number | undefined =>
    bytes.length < at + 1 + size ? undefined : bytes.readUIntBE(at + 1, size);
  const text = (length: number | undefined, start: number): { value: unknown; end: number } | undefined =>
    length === undefined || bytes.length < start + length
      ? undefined
      : { value: bytes.toString('utf8', start, start + length), end: start + length };
  const items = (count: number | undefined, start: number): { value: unknown[]; end: number } | undefined => {
    if (count === undefined) return undefined;
    const values: unknown[] = [];
    let end = start;
    for (let i = 0; i < count; i++) {
      const item = unpack(bytes, end);
      if (!item) return undefined;
      values.push(item.value);
      end = item.end;
    }
    return { value: values, end };
  };
  const map = (count: number | undefined, start: number): { value: unknown; end: number } | undefined => {
    const flat = items(count === undefined ? undefined : count * 2, start);
    return (
      flat && {
        value: Object.fromEntries(
          flat.value.flatMap((key, i) => (i % 2 === 0 ? [[key as string, flat.value[i + 1]]] : [])),
        ),
        end: flat.end,
      }
    );
  };
  if (type < 0x80) return { value: type, end: at + 1 };
  if (type < 0x90) return map(type & 0x0f, at + 1);
  if (type < 0xa0) return items(type & 0x0f, at + 1);
  if (type < 0xc0) return text(type & 0x1f, at + 1);
  switch (type) {
    case 0xc0:
      return { value: null, end: at + 1 };
    case 0xce:
    case 0xd2:
      return bytes.length < at + 5 ? undefined : { value: bytes.readUInt32BE(at + 1), end: at + 5 };
    case 0xd7:
      return bytes.length < at + 10
        ? undefined
        : { value: { seconds: bytes.readUInt32BE(at + 2), nanoseconds: bytes.readUInt32BE(at + 6) }, end: at + 10 };
    case 0xd9:
      return text(lengthOf(1), at + 2);
    case 0xda:
      return text(lengthOf(2), at + 3);
    case 0xde:
      return map(lengthOf(2), at + 3);
    default:
      throw new Error(`MessagePack type 0x${type.toString(16)} at ${at}`);
  }
}

/** All complete values one behind the other. */
export function unpackAll(bytes: Buffer): unknown[] {
  const values: unknown[] = [];
  for (let item = unpack(bytes); item; item = unpack(bytes, item.end)) values.push(item.value);
  return values;
}

/** Whether a datagram to the journal has a field: with its length, or as `NAME=value`, which simple ones may be. */
export function hasJournalField(datagrams: Buffer, field: string, text: string): boolean {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(Buffer.byteLength(text)));
  return (
    datagrams.includes(Buffer.concat([Buffer.from(`${field}\n`), length, Buffer.from(`${text}\n`)])) ||
    datagrams.includes(`${field}=${text}\n`)
  );
}
