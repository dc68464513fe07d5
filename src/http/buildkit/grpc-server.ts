/** Serves gRPC on connections that clients have upgraded; types come from the services' descriptions. */
import { Duplex } from 'node:stream';
import type {
  DescMessage,
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from '@bufbuild/protobuf';
import {
  Metadata,
  Server,
  ServerCredentials,
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type MethodDefinition,
  type ServerDuplexStream,
  type UntypedHandleCall,
} from '@grpc/grpc-js';
import { step } from '../../text/steps.js';
import { decode, encode, MAX_MESSAGE_BYTES } from './grpc-messages.js';
import { statusOf } from './grpc-status.js';

const WINDOW_BYTES = 1024 * 1024;

/** A handler knows this of its call. */
export interface CallContext {
  /** Aborted when the client gives the call up or its connection breaks. */
  readonly signal: AbortSignal;
  /** Returns all values of a name. */
  readonly metadata: (name: string) => string[];
  /** Sends metadata before the first message. */
  readonly sendMetadata: (values: Readonly<Record<string, string>>) => void;
}

/** One method of a service, ready to be served. */
export interface Served {
  readonly method: DescMethod;
  readonly handle: UntypedHandleCall;
}

export function unary<Input extends DescMessage, Output extends DescMessage>(
  method: DescMethodUnary<Input, Output>,
  handler: (input: MessageShape<Input>, context: CallContext) => Promise<MessageInitShape<Output>>,
): Served {
  const handle: handleUnaryCall<Buffer, Buffer> = (call, callback) => {
    const aborter = aborterOf(call);
    const context = contextOf(aborter, call);
    Promise.resolve()
      .then(() => step(`grpc.${method.name}`, () => handler(decode(method.input, call.request), context)))
      .finally(() => (aborter.isOver = true))
      .then(
        (output) => callback(null, encode(method.output, output)),
        (error: unknown) => callback(statusOf(error)),
      );
  };
  return { method, handle: handle as UntypedHandleCall };
}

/** The handler yields messages, encoded or not. */
export function serverStream<Input extends DescMessage, Output extends DescMessage>(
  method: DescMethodServerStreaming<Input, Output>,
  handler: (input: MessageShape<Input>, context: CallContext) => AsyncIterable<Buffer | MessageInitShape<Output>>,
): Served {
  const handle: handleServerStreamingCall<Buffer, Buffer> = (call) => {
    const aborter = aborterOf(call);
    call.on('error', () => aborter.abort());
    const send = async (): Promise<void> => {
      for await (const output of handler(decode(method.input, call.request), contextOf(aborter, call))) {
        if (aborter.signal.aborted) return;
        const bytes = Buffer.isBuffer(output) ? output : encode(method.output, output);
        if (!call.write(bytes)) await drained(call, aborter.signal);
      }
      aborter.isOver = true;
      call.end();
    };
    step(`grpc.${method.name}`, send).catch((error: unknown) => {
      if (!aborter.signal.aborted) call.emit('error', statusOf(error));
    });
  };
  return { method, handle: handle as UntypedHandleCall };
}

/** The handler gets a stream of bytes that the messages of both directions carry. */
export function byteTunnel<Message extends DescMessage>(
  method: DescMethodBiDiStreaming<Message, Message>,
  codec: { readonly unpack: (message: MessageShape<Message>) => Uint8Array; readonly pack: (bytes: Buffer) => Buffer },
  handler: (tunnel: Duplex, context: CallContext) => Promise<void>,
): Served {
  const handle: handleBidiStreamingCall<Buffer, Buffer> = (call) => {
    const aborter = new AbortController();
    const tunnel = new CallTunnel(call, (bytes) => codec.unpack(decode(method.input, bytes)), codec.pack);
    call.on('cancelled', () => (aborter.abort(), tunnel.destroy()));
    Promise.resolve()
      .then(() => handler(tunnel, contextOf(aborter, call)))
      .then(
        () => call.end(),
        (error: unknown) => void call.emit('error', statusOf(error)),
      );
  };
  return { method, handle: handle as UntypedHandleCall };
}

/** Offers services on connections. */
export class GrpcServer {
  readonly #injector: { injectConnection(connection: Duplex): void; drain(graceMs: number): void; destroy(): void };
  readonly #server: Server;
  /** Connections on which nothing has come yet. */
  readonly #silent = new Set<Duplex>();

  constructor(services: readonly (readonly [DescService, readonly Served[]])[]) {
    this.#server = new Server({
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
      'grpc-node.flow_control_window': WINDOW_BYTES,
      'grpc.enable_channelz': 0,
    });
    for (const [service, served] of services) {
      const handled = served.map(({ method, handle }) => [method.name, handle] as const);
      const methods = served.map(({ method }) => [method.name, definitionOf(service, method)] as const);
      this.#server.addService(Object.fromEntries(methods), Object.fromEntries(handled));
    }
    this.#injector = this.#server.createConnectionInjector(ServerCredentials.createInsecure());
  }

  /**
   * Serves a connection, which belongs to the server from now on. A client of HTTP/2 speaks first: until it does, there
   * is no session of HTTP/2, as buildx only looks twice before a build whether it would get one.
   */
  serve(connection: Duplex): void {
    connection.on('error', () => connection.destroy());
    const heard = (): void => {
      if (connection.readableLength === 0) return void connection.read();
      connection.off('readable', heard);
      this.#silent.delete(connection);
      this.#injector.injectConnection(connection);
    };
    this.#silent.add(connection);
    connection.on('readable', heard);
    connection.once('close', () => this.#silent.delete(connection));
  }

  close(): void {
    for (const connection of this.#silent) connection.destroy();
    this.#injector.destroy();
    this.#server.forceShutdown();
  }
}

class CallAborter extends AbortController {
  /** Nobody listens any more. */
  isOver = false;
}

/** Every call is called cancelled in the end, when its stream is closed: the signal tells of those under way. */
function aborterOf(call: NodeJS.EventEmitter): CallAborter {
  const aborter = new CallAborter();
  call.on('cancelled', () => {
    if (!aborter.isOver) aborter.abort();
  });
  return aborter;
}

const same = (bytes: Buffer): Buffer => bytes;

function definitionOf(service: DescService, method: DescMethod): MethodDefinition<Buffer, Buffer> {
  return {
    path: `/${service.typeName}/${method.name}`,
    requestStream: method.methodKind === 'bidi_streaming' || method.methodKind === 'client_streaming',
    responseStream: method.methodKind === 'bidi_streaming' || method.methodKind === 'server_streaming',
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
}

function contextOf(
  aborter: AbortController,
  call: { readonly metadata: Metadata; sendMetadata(metadata: Metadata): void },
): CallContext {
  return {
    signal: aborter.signal,
    metadata: (name) => call.metadata.get(name).map((value) => value.toString()),
    sendMetadata: (values) => {
      const metadata = new Metadata();
      for (const [name, value] of Object.entries(values)) metadata.set(name, value);
      call.sendMetadata(metadata);
    },
  };
}

async function drained(stream: NodeJS.EventEmitter, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = (): void => {
      stream.off('drain', done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    stream.on('drain', done);
    signal.addEventListener('abort', done, { once: true });
    if (signal.aborted) done();
  });
}

/** A stream of bytes inside a call. */
class CallTunnel extends Duplex {
  readonly #call: ServerDuplexStream<Buffer, Buffer>;
  readonly #pack: (bytes: Buffer) => Buffer;

  constructor(
    call: ServerDuplexStream<Buffer, Buffer>,
    unpack: (message: Buffer) => Uint8Array,
    pack: (bytes: Buffer) => Buffer,
  ) {
    super({ allowHalfOpen: true });
    this.#call = call;
    this.#pack = pack;
    this.on('error', () => undefined);
    call.on('data', (message: Buffer) => {
      const bytes = unpack(message);
      if (bytes.length > 0 && !this.push(bytes)) call.pause();
    });
    call.on('end', () => this.push(null));
    call.on('error', () => this.destroy());
  }

  override _read(): void {
    this.#call.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: () => void): void {
    if (this.#call.write(this.#pack(chunk))) callback();
    else this.#call.once('drain', callback);
  }

  override _final(callback: () => void): void {
    this.#call.end();
    callback();
  }
}
