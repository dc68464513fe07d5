/**
 * Requests over a daemon's unix socket with nothing in between, so that tests see status lines, headers and bytes as
 * they are. `tcp://HOST:PORT` in the place of its path is a daemon that listens there.
 */
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';

export interface CallOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON with its content type. */
  readonly json?: unknown;
  /** Sent as it is; `headers` should say what it is. */
  readonly body?: string | Buffer;
  /** Drops the connection. */
  readonly signal?: AbortSignal;
}

export interface Reply {
  readonly status: number;
  readonly statusText: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** `Name: value` in the order and case of the wire. */
  readonly headerLines: readonly string[];
  readonly body: Buffer;
  readonly text: string;
}

function place(socketPath: string): { socketPath: string } | { host: string; port: number } {
  if (!socketPath.startsWith('tcp:')) return { socketPath };
  const { hostname, port } = new URL(socketPath);
  return { host: hostname, port: Number(port) };
}

function send(socketPath: string, method: string, path: string, options: CallOptions): Promise<IncomingMessage> {
  const body = options.json === undefined ? options.body : JSON.stringify(options.json);
  const headers: Record<string, string | number> = {
    ...(options.json === undefined ? {} : { 'Content-Type': 'application/json' }),
    ...(body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) }),
    ...options.headers,
  };
  return new Promise((resolve, reject) => {
    const { signal } = options;
    const outgoing = request({ ...place(socketPath), method, path, headers, agent: false, signal }, resolve);
    outgoing.once('error', reject);
    outgoing.end(body);
  });
}

function headerLines(message: IncomingMessage): string[] {
  const lines: string[] = [];
  for (let index = 0; index < message.rawHeaders.length; index += 2)
    lines.push(`${message.rawHeaders[index]}: ${message.rawHeaders[index + 1]}`);
  return lines;
}

/** One request on a connection of its own; resolves when the whole body is there. */
export async function call(
  socketPath: string,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Reply> {
  const message = await send(socketPath, method, path, options);
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  return {
    status: message.statusCode ?? 0,
    statusText: message.statusMessage ?? '',
    headers: message.headers,
    headerLines: headerLines(message),
    body,
    // Few of those who read large bodies want them as a text.
    get text() {
      return body.toString();
    },
  };
}

/**
 * Like `call`, but throws unless the status is one of `statuses`, and gives the decoded JSON (undefined when empty).
 */
export async function callJson<T>(
  socketPath: string,
  method: string,
  path: string,
  options: CallOptions = {},
  ...statuses: number[]
): Promise<T> {
  const reply = await call(socketPath, method, path, options);
  const wanted = statuses.length === 0 ? [200, 201, 204] : statuses;
  if (!wanted.includes(reply.status)) throw new Error(`${method} ${path} gave ${reply.status}: ${reply.text}`);
  return (reply.body.length === 0 ? undefined : JSON.parse(reply.text)) as T;
}

export interface OpenReply {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** The body as it arrives. Ends with the response. */
  readonly message: IncomingMessage;
  /** Drops the connection. */
  close(): void;
}

/** Resolves with the head; the body stays open for the caller to read. */
export async function open(
  socketPath: string,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<OpenReply> {
  const message = await send(socketPath, method, path, options);
  return { status: message.statusCode ?? 0, headers: message.headers, message, close: () => void message.destroy() };
}

/** Reads JSON objects, one a line, as pull progress and events come. */
export async function* jsonLines<T>(message: AsyncIterable<Buffer>): AsyncGenerator<T> {
  let rest = '';
  for await (const chunk of message) {
    const lines = (rest + chunk.toString()).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') yield JSON.parse(line) as T;
  }
  if (rest.trim() !== '') yield JSON.parse(rest) as T;
}

/** A bare connection for bytes that no HTTP client would send, and for hijacked streams. */
export class RawConnection {
  #received = Buffer.alloc(0);
  /** Pieces that have come since `#received` was put together. */
  #pieces: Buffer[] = [];
  #ended = false;
  readonly #readers = new Set<() => void>();
  readonly #socket: Socket;

  /** @param socket is connected, and the connection's from now on. */
  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#pieces.push(chunk);
      this.#wake();
    });
    // A reset ends the reading like an orderly end does; tests judge by the bytes.
    for (const event of ['end', 'error'])
      socket.once(event, () => {
        this.#ended = true;
        this.#wake();
      });
  }

  static async open(socketPath: string): Promise<RawConnection> {
    const socket = connect({ path: socketPath, allowHalfOpen: true });
    await once(socket, 'connect');
    return new RawConnection(socket);
  }

  write(bytes: string | Buffer): void {
    this.#socket.write(bytes);
  }

  /** As `write`; resolves when all is with the kernel. Throws when the other side does not take it. */
  async writeAll(bytes: string | Buffer): Promise<void> {
    await new Promise<void>((resolve, reject) =>
      this.#socket.write(bytes, (error) => (error ? reject(error) : resolve())),
    );
  }

  /** Sends FIN; the other direction stays open. */
  halfClose(): void {
    this.#socket.end();
  }

  close(): void {
    this.#socket.destroy();
  }

  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Everything up to and including `mark`, which later reads do not see again. Throws when the stream ends or time is
   * up before.
   */
  async readThrough(mark: string, timeoutMs = 60_000): Promise<string> {
    const deadline = Date.now() + timeoutMs;
    const length = Buffer.byteLength(mark);
    for (let from = 0; ;) {
      const received = this.#all();
      const at = received.indexOf(mark, from);
      if (at >= 0) return this.#take(at + length).toString();
      if (this.#ended || Date.now() > deadline)
        throw new Error(`no ${JSON.stringify(mark)} in ${JSON.stringify(received.toString())}`);
      from = Math.max(0, received.length - length + 1);
      await this.#more(deadline);
    }
  }

  /** The rest of the stream until the other side ends it. */
  async readToEnd(timeoutMs = 60_000): Promise<Buffer> {
    const deadline = Date.now() + timeoutMs;
    while (!this.#ended) {
      if (Date.now() > deadline)
        throw new Error(`the stream is still open after ${JSON.stringify(this.#all().toString())}`);
      await this.#more(deadline);
    }
    return this.#take(this.#all().length);
  }

  #all(): Buffer {
    if (this.#pieces.length > 0) this.#received = Buffer.concat([this.#received, ...this.#pieces]);
    this.#pieces = [];
    return this.#received;
  }

  #take(count: number): Buffer {
    const taken = this.#received.subarray(0, count);
    this.#received = this.#received.subarray(count);
    return taken;
  }

  /** Waits for bytes, the end, or the deadline. */
  async #more(deadline: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    let wake: () => void = () => undefined;
    await new Promise<void>((resolve) => {
      wake = resolve;
      this.#readers.add(wake);
      timer = setTimeout(wake, Math.max(1, deadline - Date.now())).unref();
    });
    this.#readers.delete(wake);
    clearTimeout(timer);
  }

  #wake(): void {
    for (const wake of this.#readers) wake();
  }
}
