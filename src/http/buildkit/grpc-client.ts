/**
 * Calls the gRPC services that a client offers on a connection that it opened itself. grpc-js dials its connections on
 * its own, so this speaks HTTP/2 by Node's module.
 */
import {
  connect,
  constants,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { cancelled, EngineError, messageOf, unavailable } from '../../errors/engine-error.js';
import { decode, encode, failedCall, frame, FrameReader, GrpcCode } from './grpc-messages.js';

const STREAM_WINDOW_BYTES = 1024 * 1024;
const CONNECTION_WINDOW_BYTES = 8 * 1024 * 1024;
const MAX_FRAME_BYTES = 1024 * 1024;
/**
 * Paths and patterns that a build reads travel as metadata: thousands of them in a large ignore file. Clients take a
 * mebibyte, which they say in their settings; Node would send no more than 64 KiB.
 */
const MAX_METADATA_BYTES = 1024 * 1024;
/** Longer texts of errors are cut off. */
const MAX_ERROR_CHARS = 8192;

/** Values of one name are sent as lines of their own, because a value may have commas. */
export type CallMetadata = Readonly<Record<string, string | readonly string[]>>;

export interface CallOptions {
  readonly metadata?: CallMetadata;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

export class GrpcClient {
  readonly #session: ClientHttp2Session;
  /** Resolves when the connection is over, however it ended. */
  readonly closed: Promise<void>;

  /** @param connection is read and written by this object alone from now on. */
  constructor(connection: Duplex) {
    this.#session = connect('http://localhost', {
      createConnection: () => connection,
      maxSendHeaderBlockLength: MAX_METADATA_BYTES,
      settings: { initialWindowSize: STREAM_WINDOW_BYTES, maxFrameSize: MAX_FRAME_BYTES, enablePush: false },
    });
    this.#session.on('error', () => undefined);
    this.#session.once('connect', () => {
      if (!this.#session.destroyed) this.#session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    });
    this.closed = new Promise((resolve) => this.#session.once('close', () => resolve()));
    connection.once('close', () => this.close());
  }

  get isClosed(): boolean {
    return this.#session.closed || this.#session.destroyed;
  }

  close(): void {
    if (!this.#session.destroyed) this.#session.destroy();
  }

  /** Makes a call with one message each way. @throws EngineError with the client's text. */
  async unary<Input extends DescMessage, Output extends DescMessage>(
    path: string,
    [inputSchema, input]: readonly [Input, MessageInitShape<Input>],
    outputSchema: Output,
    options: CallOptions = {},
  ): Promise<MessageShape<Output>> {
    const call = this.open(path, options);
    await call.send(encode(inputSchema, input));
    call.end();
    let reply: MessageShape<Output> | undefined;
    for await (const message of call.messages()) reply ??= decode(outputSchema, message);
    if (reply === undefined) throw unavailable(`${path}: the client sent no answer`);
    return reply;
  }

  /** Opens a call with streams both ways. @throws EngineError unavailable when the connection is over. */
  open(path: string, { metadata = {}, signal, timeoutMs }: CallOptions = {}): MessageCall {
    if (this.isClosed) throw unavailable('the client has closed its session');
    const stream = this.#session.request({
      ...metadata,
      [constants.HTTP2_HEADER_METHOD]: 'POST',
      [constants.HTTP2_HEADER_PATH]: path,
      'content-type': 'application/grpc',
      te: 'trailers',
      'user-agent': 'engined',
    } as Record<string, string | string[]>);
    return new GrpcCall(stream, signal, timeoutMs);
  }
}

/** A call with streams of messages both ways. */
export interface MessageCall {
  /** Sends messages; resolves when more may be sent. After the end of the call it does nothing. */
  send(...messages: readonly Uint8Array[]): Promise<void>;
  /** Says that nothing more is sent. */
  end(): void;
  /** Ends the call for both sides. */
  cancel(reason?: EngineError): void;
  /** Yields what the client sends until it ends the call. @throws EngineError when it ended with a failure. */
  messages(): AsyncIterable<Buffer>;
}

class GrpcCall implements MessageCall {
  readonly #stream: ClientHttp2Stream;
  #status: { readonly code: number; readonly message: string } | undefined;
  #failure: EngineError | undefined;

  constructor(stream: ClientHttp2Stream, signal: AbortSignal | undefined, timeoutMs: number | undefined) {
    this.#stream = stream;
    stream.on('response', (headers) => this.#note(headers));
    stream.on('trailers', (headers) => this.#note(headers));
    stream.on('error', (error) => (this.#failure ??= unavailable(`the client's session broke: ${messageOf(error)}`)));
    const abort = (): void => this.cancel(cancelled('context canceled'));
    const timer =
      timeoutMs === undefined
        ? undefined
        : setTimeout(() => this.cancel(new EngineError('deadline', 'the client does not answer')), timeoutMs);
    if (signal?.aborted === true) abort();
    else signal?.addEventListener('abort', abort, { once: true });
    stream.once('close', () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    });
  }

  async send(...messages: readonly Uint8Array[]): Promise<void> {
    const stream = this.#stream;
    if (stream.destroyed || stream.writableEnded) return;
    const [first, ...others] = messages.map(frame);
    if (first === undefined || stream.write(others.length === 0 ? first : Buffer.concat([first, ...others]))) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        stream.off('drain', done);
        stream.off('close', done);
        resolve();
      };
      stream.on('drain', done);
      stream.on('close', done);
    });
  }

  end(): void {
    if (!this.#stream.writableEnded) this.#stream.end();
  }

  cancel(reason: EngineError = cancelled('context canceled')): void {
    this.#failure ??= reason;
    if (!this.#stream.destroyed) this.#stream.close(constants.NGHTTP2_CANCEL);
    this.#stream.destroy();
  }

  async *messages(): AsyncGenerator<Buffer> {
    const reader = new FrameReader();
    try {
      for await (const piece of this.#stream) {
        // `yield*` would wait three times for each of them.
        for (const message of reader.push(piece as Buffer)) yield message;
      }
    } catch (error) {
      if (this.#failure === undefined && error instanceof EngineError) this.#failure = error;
      this.#failure ??= unavailable(`the client's session broke: ${messageOf(error)}`);
    } finally {
      if (!this.#stream.closed) this.#stream.close(constants.NGHTTP2_CANCEL);
    }
    const status = this.#status;
    if (status !== undefined && status.code !== GrpcCode.ok) throw failedCall(status.code, status.message);
    if (this.#failure !== undefined) throw this.#failure;
    if (status === undefined) throw unavailable('the client ended a call without a status');
  }

  #note(headers: IncomingHttpHeaders): void {
    const code = headers['grpc-status'];
    if (typeof code !== 'string') return;
    const text = headers['grpc-message'];
    this.#status ??= {
      code: Number.parseInt(code, 10) || (code === '0' ? 0 : GrpcCode.unknown),
      message: decodeMessage(typeof text === 'string' ? text : ''),
    };
  }
}

/** Texts of errors are percent-encoded. */
function decodeMessage(text: string): string {
  try {
    return decodeURIComponent(text.slice(0, MAX_ERROR_CHARS));
  } catch {
    return text.slice(0, MAX_ERROR_CHARS);
  }
}
