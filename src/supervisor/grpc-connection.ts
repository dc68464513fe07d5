/** A typed gRPC connection to containerd over its unix socket. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
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
  Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  connectivityState,
  credentials,
  Metadata,
} from '@grpc/grpc-js';
import { unavailable } from '../errors/engine-error.js';
import { step } from '../text/steps.js';
import { fromGrpc } from './grpc-error.js';

// As large as containerd's own limit: a spec with many mounts or a long list of tasks must fit.
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
// A restarted supervisor answers within a fraction of a second, so callers ride over a restart.
const READY_TIMEOUT_MS = 5_000;
/** After this interval the connection checks again whether waiting longer makes sense. */
const PATIENCE_STEP_MS = 250;

export interface CallOptions {
  /** Must not be set for changes of tasks: if they are cancelled, they leave the runtime half done. Default: none. */
  readonly timeoutMs?: number;
  /** This lease holds what the call makes. */
  readonly lease?: string;
}

type UnaryCall<Method extends DescMethod> = (
  input: MessageInitShape<Method['input']>,
  options?: CallOptions,
) => Promise<MessageShape<Method['output']>>;

/** The unary methods of a generated service as functions. */
export type UnaryClient<Service extends DescService> = {
  readonly [
    Name in keyof Service['method'] as Service['method'][Name]['methodKind'] extends 'unary' ? Name : never
  ]: UnaryCall<Service['method'][Name]>;
};

/** A connection whose calls carry the namespace. gRPC connects and reconnects, with a backoff of 50 to 500 ms. */
export class GrpcConnection {
  readonly #client: Client;
  readonly #metadata = new Metadata();
  readonly #isComing: () => boolean;
  #isClosed = false;

  /**
   * The connection dials nothing before the first call.
   * @param address is the path of containerd's socket.
   * @param isComing tells whether an answer can be expected, however long it takes.
   */
  constructor(address: string, namespace: string, isComing: () => boolean = () => false) {
    this.#isComing = isComing;
    this.#metadata.set('containerd-namespace', namespace);
    this.#client = new Client(`unix:${address}`, credentials.createInsecure(), {
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
      'grpc.initial_reconnect_backoff_ms': 50,
      'grpc.min_reconnect_backoff_ms': 50,
      'grpc.max_reconnect_backoff_ms': 500,
      'grpc.enable_retries': 0,
      'grpc.enable_channelz': 0,
      'grpc.enable_http_proxy': 0,
      'grpc.service_config_disable_resolution': 1,
      'grpc.default_authority': 'localhost',
    });
  }

  /** Returns the unary methods of a service. Each throws EngineError; `unavailable` when no connection comes. */
  unary<Service extends DescService>(service: Service): UnaryClient<Service> {
    const calls = Object.entries(service.method)
      .filter((entry): entry is [string, DescMethodUnary] => entry[1].methodKind === 'unary')
      .map(([name, method]) => [name, this.#unaryCall(method)]);
    return Object.fromEntries(calls) as UnaryClient<Service>;
  }

  /** Opens a server stream as soon as there is a connection. The caller listens for 'data' and 'error', and cancels. */
  serverStream<Input extends DescMessage, Output extends DescMessage>(
    method: DescMethodServerStreaming<Input, Output>,
    input: MessageInitShape<Input>,
  ): ClientReadableStream<MessageShape<Output>> {
    const metadata = this.#metadata.clone();
    metadata.setOptions({ waitForReady: true });
    return this.#client.makeServerStreamRequest(
      pathOf(method),
      (message: MessageShape<Input>) => encode(method.input, message),
      (bytes: Buffer) => decode(method.output, bytes),
      create(method.input, input),
      metadata,
    );
  }

  /** Opens a stream in both directions, as `serverStream` does. The caller also writes, and ends or cancels. */
  bidiStream<Input extends DescMessage, Output extends DescMessage>(
    method: DescMethodBiDiStreaming<Input, Output>,
    lease: string,
  ): ClientDuplexStream<MessageShape<Input>, MessageShape<Output>> {
    const metadata = this.#withLease(lease);
    metadata.setOptions({ waitForReady: true });
    return this.#client.makeBidiStreamRequest(
      pathOf(method),
      (message: MessageShape<Input>) => encode(method.input, message),
      (bytes: Buffer) => decode(method.output, bytes),
      metadata,
    );
  }

  /**
   * Resolves when the connection is up.
   * @throws EngineError unavailable after `close`, or when the timeout has passed and no answer can be expected any
   * more.
   */
  async ready(timeoutMs = READY_TIMEOUT_MS): Promise<void> {
    const end = performance.now() + timeoutMs;
    for (;;) {
      if (this.#isClosed) throw unavailable('the connection to the supervisor is closed');
      const error = await this.#waitForReady(PATIENCE_STEP_MS);
      if (error === undefined) return;
      if (performance.now() >= end && !this.#isComing()) {
        throw unavailable('the supervisor does not answer', { cause: error });
      }
    }
  }

  #waitForReady(timeoutMs: number): Promise<Error | undefined> {
    return new Promise((resolve) => this.#client.waitForReady(Date.now() + timeoutMs, resolve));
  }

  /** Ends the connection; later calls fail. */
  close(): void {
    this.#isClosed = true;
    this.#client.close();
  }

  #withLease(lease: string): Metadata {
    const metadata = this.#metadata.clone();
    metadata.set('containerd-lease', lease);
    return metadata;
  }

  #unaryCall<Input extends DescMessage, Output extends DescMessage>(
    method: DescMethodUnary<Input, Output>,
  ): UnaryCall<DescMethodUnary<Input, Output>> {
    const path = pathOf(method);
    const label = `containerd.${method.parent.name.toLowerCase()}.${method.localName}`;
    const serialize = (message: MessageShape<Input>): Buffer => encode(method.input, message);
    const deserialize = (bytes: Buffer): MessageShape<Output> => decode(method.output, bytes);
    return async (input, { timeoutMs, lease } = {}) => {
      if (this.#client.getChannel().getConnectivityState(true) !== connectivityState.READY) {
        await this.ready();
      }
      const options = timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
      const message = create(method.input, input);
      const metadata = lease === undefined ? this.#metadata : this.#withLease(lease);
      const call = (): Promise<MessageShape<Output>> =>
        new Promise((resolve, reject) => {
          this.#client.makeUnaryRequest(path, serialize, deserialize, message, metadata, options, (error, output) => {
            if (error) reject(fromGrpc(error, method.name));
            else if (output) resolve(output);
          });
        });
      return step(label, call);
    };
  }
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Encodes a message. grpc-js wants a Buffer; this is a view of the encoder's bytes, not a copy. */
function encode<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Buffer {
  const bytes = toBinary(schema, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Decodes a message. Fields that our trimmed messages lack, such as a container repeated in an answer, are dropped. */
function decode<Desc extends DescMessage>(schema: Desc, bytes: Buffer): MessageShape<Desc> {
  return fromBinary(schema, bytes, { readUnknownFields: false });
}
