/** A WebSocket client that can also misbehave. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { waitFor } from './wait.js';

export interface ReceivedFrame {
  readonly opcode: number;
  readonly payload: Buffer;
}

export class WebSocketClient {
  /** Status line and headers of the reply. */
  head = '';
  readonly frames: ReceivedFrame[] = [];
  isEnded = false;
  readonly #socket: Socket;
  #received = Buffer.alloc(0);

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      if (this.head !== '') this.#takeFrames();
    });
    for (const event of ['end', 'close', 'error']) socket.once(event, () => (this.isEnded = true));
  }

  /** Resolves with the head of the reply, whatever it says. */
  static async open(
    socketPath: string,
    path: string,
    headers: Readonly<Record<string, string | undefined>> = {},
  ): Promise<WebSocketClient> {
    const socket = connect({ path: socketPath, allowHalfOpen: true });
    await once(socket, 'connect');
    return WebSocketClient.over(socket, path, headers);
  }

  /** The same over a connection that is there already, and is the client's from now on. */
  static async over(
    socket: Socket,
    path: string,
    headers: Readonly<Record<string, string | undefined>> = {},
  ): Promise<WebSocketClient> {
    const client = new WebSocketClient(socket);
    const all = {
      Host: 'x',
      Connection: 'keep-alive, Upgrade',
      Upgrade: 'websocket',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
      ...headers,
    };
    const lines = Object.entries(all).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name}: ${value}\r\n`],
    );
    socket.write(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
    await waitFor('the head of the reply', () => client.#received.includes('\r\n\r\n') || client.isEnded);
    const end = client.#received.indexOf('\r\n\r\n');
    client.head = client.#received.subarray(0, end).toString();
    client.#received = client.#received.subarray(end + 4);
    if (client.head.startsWith('HTTP/1.1 101')) client.#takeFrames();
    return client;
  }

  /** The bytes behind the head of a reply that is no upgrade. */
  get body(): string {
    return this.#received.toString();
  }

  /** Payloads of data frames so far. */
  get text(): string {
    return Buffer.concat(this.frames.filter(({ opcode }) => opcode < 8).map(({ payload }) => payload)).toString();
  }

  /** Sends one masked frame. */
  send(opcode: number, payload: string | Buffer, isFinal = true): void {
    const bytes = Buffer.from(payload);
    const mask = randomBytes(4);
    const head =
      bytes.length < 126
        ? Buffer.of(0, 0x80 | bytes.length)
        : Buffer.of(0, 0x80 | 127, 0, 0, 0, 0, ...uint32(bytes.length));
    head[0] = (isFinal ? 0x80 : 0) | opcode;
    this.#socket.write(Buffer.concat([head, mask, bytes.map((byte, i) => byte ^ (mask[i % 4] ?? 0))]));
  }

  raw(bytes: Buffer): void {
    this.#socket.write(bytes);
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #takeFrames(): void {
    for (;;) {
      const [first = 0, short = 0] = this.#received;
      const headBytes = short === 126 ? 4 : short === 127 ? 10 : 2;
      if (this.#received.length < headBytes) return;
      const length =
        short === 126
          ? this.#received.readUInt16BE(2)
          : short === 127
            ? Number(this.#received.readBigUInt64BE(2))
            : short;
      if (this.#received.length < headBytes + length) return;
      this.frames.push({ opcode: first & 0x0f, payload: this.#received.subarray(headBytes, headBytes + length) });
      this.#received = this.#received.subarray(headBytes + length);
    }
  }
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
