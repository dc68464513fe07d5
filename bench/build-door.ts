/**
 * A client that says to an engine all that buildx says for a build, from its first connection to its last, in a process
 * that runs already: a build without the start and the end of a program. Its directory has nothing but a Dockerfile.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { Server, ServerCredentials, type MethodDefinition, type ServerDuplexStream } from '@grpc/grpc-js';
import { GrpcClient, type CallMetadata } from '../src/http/buildkit/grpc-client.js';
import { decode, encode } from '../src/http/buildkit/grpc-messages.js';
import {
  BuildHistoryRequestSchema,
  ListWorkersRequestSchema,
  ListWorkersResponseSchema,
  SolveRequestSchema,
  SolveResponseSchema,
  StatusRequestSchema,
} from '../src/http/buildkit/proto/gen/control_pb.js';
import { EmptySchema } from '../src/http/buildkit/proto/gen/common_pb.js';
import {
  PingRequestSchema,
  PongResponseSchema,
  ReturnRequestSchema,
  SolveRequestSchema as FrontendRequestSchema,
  SolveResponseSchema as FrontendResponseSchema,
} from '../src/http/buildkit/proto/gen/gateway_pb.js';
import { Packet_Type, PacketSchema } from '../src/http/buildkit/proto/gen/session_pb.js';
import { call } from '../test/support/http.js';

const CONTROL = '/moby.buildkit.v1.Control';
const BRIDGE = '/moby.buildkit.v1.frontend.LLBBridge';
const FILES = '/moby.filesync.v1.FileSync/DiffCopy';
const SHARED_KEY = 'X-Docker-Expose-Session-Sharedkey: bench:1';
const HEAD_END = '\r\n\r\n';

async function upgrade(socketPath: string, path: string, ...headers: readonly string[]): Promise<Socket> {
  const socket = connect(socketPath);
  const lines = [`POST ${path} HTTP/1.1`, 'Host: ', 'Content-Length: 0', 'Connection: Upgrade', 'Upgrade: h2c'];
  socket.write([...lines, ...headers].join('\r\n') + HEAD_END);
  let head = Buffer.alloc(0);
  while (!head.includes(HEAD_END)) {
    await once(socket, 'readable');
    head = Buffer.concat([head, (socket.read() as Buffer | null) ?? Buffer.alloc(0)]);
  }
  if (!head.toString('latin1').startsWith('HTTP/1.1 101 ')) throw new Error(`${path}: ${head.toString('latin1')}`);
  const rest = head.subarray(head.indexOf(HEAD_END) + HEAD_END.length);
  if (rest.length > 0) socket.unshift(rest);
  return socket;
}

const same = (bytes: Buffer): Buffer => bytes;
const DIFF_COPY: MethodDefinition<Buffer, Buffer> = {
  path: FILES,
  requestStream: true,
  responseStream: true,
  requestSerialize: same,
  requestDeserialize: same,
  responseSerialize: same,
  responseDeserialize: same,
};

type Injector = ReturnType<Server['createConnectionInjector']>;

/** The directory that a client builds, with one file. */
function sessionServer(dockerfile: string): Server {
  const server = new Server();
  const diffCopy = (call: ServerDuplexStream<Buffer, Buffer>): void => {
    const send = (packet: MessageInitShape<typeof PacketSchema>): void => void call.write(encode(PacketSchema, packet));
    // Node joins the values that come one by one.
    const wanted = call.metadata.get('followpaths').flatMap((values) => String(values).split(', '));
    const size = BigInt(Buffer.byteLength(dockerfile));
    if (wanted.includes('Dockerfile'))
      send({ type: Packet_Type.STAT, stat: { path: 'Dockerfile', mode: 0o644, size, modTime: 1n } });
    send({ type: Packet_Type.STAT });
    call.on('data', (message: Buffer) => {
      const { type, id } = decode(PacketSchema, message);
      if (type === Packet_Type.REQ) {
        send({ type: Packet_Type.DATA, id, data: Buffer.from(dockerfile) });
        send({ type: Packet_Type.DATA, id });
      } else if (type === Packet_Type.FIN) {
        send({ type: Packet_Type.FIN });
        call.end();
      }
    });
  };
  server.addService({ diffCopy: DIFF_COPY }, { diffCopy });
  return server;
}

interface SolveOrder {
  readonly internal?: boolean;
  readonly exporters?: { type: string; attrs: Record<string, string> }[];
  readonly frontendAttrs?: Record<string, string>;
}

/** A connection to the engine, on which builds are ordered as the client's own frontend does it. */
class Conversation {
  readonly #client: GrpcClient;
  readonly #socketPath: string;

  private constructor(socketPath: string, socket: Socket) {
    this.#socketPath = socketPath;
    this.#client = new GrpcClient(socket);
  }

  static async open(socketPath: string): Promise<Conversation> {
    return new Conversation(socketPath, await upgrade(socketPath, '/grpc'));
  }

  /** Asks for the worker, which tells whether images go to a store of snapshots. */
  async exporter(): Promise<string> {
    const { record } = await this.#call(`${CONTROL}/ListWorkers`, [
      ListWorkersRequestSchema,
      {},
      ListWorkersResponseSchema,
    ]);
    const labels = record[0]?.labels ?? {};
    return 'org.mobyproject.buildkit.worker.snapshotter' in labels ? 'image' : 'moby';
  }

  /** Orders a build with what a frontend tells of it; without one that of buildx, which only looks what there is. */
  async order(
    files: Injector,
    order: SolveOrder,
    frontend?: MessageInitShape<typeof FrontendRequestSchema>,
  ): Promise<void> {
    const [ref, session] = [randomBytes(12).toString('hex'), randomBytes(12).toString('hex')];
    const metadata = { 'buildkit-controlapi-buildid': ref };
    const serve = async (): Promise<Socket> => {
      const uuid = `X-Docker-Expose-Session-Uuid: ${session}`;
      const methods = `X-Docker-Expose-Session-Grpc-Method: ${FILES}`;
      const socket = await upgrade(this.#socketPath, '/session', uuid, SHARED_KEY, methods);
      files.injectConnection(socket);
      return socket;
    };
    const solve = { ...order, ref, session, cache: {} };
    const solved = this.#call(`${CONTROL}/Solve`, [SolveRequestSchema, solve, SolveResponseSchema]);
    const told = this.#read(`${CONTROL}/Status`, [StatusRequestSchema, { ref }]);
    const ask = async (): Promise<void> => {
      await this.#call(`${BRIDGE}/Ping`, [PingRequestSchema, {}, PongResponseSchema], metadata);
      const result = frontend
        ? (await this.#call(`${BRIDGE}/Solve`, [FrontendRequestSchema, frontend, FrontendResponseSchema], metadata))
            .result
        : { result: { case: 'ref' as const, value: {} } };
      await this.#call(`${BRIDGE}/Return`, [ReturnRequestSchema, { ...(result && { result }) }, EmptySchema], metadata);
    };
    const [socket] = await Promise.all([serve(), ask(), solved, told]);
    socket.destroy();
  }

  /** Asks whether there is a history, as buildx does after each build. */
  history(): Promise<void> {
    const request = { activeOnly: true, ref: 'buildx-test-history-api-feature', earlyExit: true };
    return this.#read(`${CONTROL}/ListenBuildHistory`, [BuildHistoryRequestSchema, request]);
  }

  close(): void {
    this.#client.close();
  }

  #call<Input extends DescMessage, Output extends DescMessage>(
    path: string,
    [input, message, output]: readonly [Input, MessageInitShape<Input>, Output],
    metadata: CallMetadata = {},
  ): Promise<MessageShape<Output>> {
    return this.#client.unary(path, [input, message], output, { metadata });
  }

  /** Reads a stream to its end. */
  async #read<Input extends DescMessage>(
    path: string,
    [input, message]: readonly [Input, MessageInitShape<Input>],
  ): Promise<void> {
    const call = this.#client.open(path);
    await call.send(encode(input, message));
    call.end();
    for await (const piece of call.messages()) void piece;
  }
}

export class BuildDoor {
  readonly #socketPath: string;
  readonly #files: Injector;

  constructor(socketPath: string, dockerfile: string) {
    this.#socketPath = socketPath;
    this.#files = sessionServer(dockerfile).createConnectionInjector(ServerCredentials.createInsecure());
  }

  /** Builds an image of this name. @throws what the engine says. */
  async build(name: string): Promise<void> {
    const socketPath = this.#socketPath;
    for (let probes = 0; probes < 2; probes++) {
      await call(socketPath, 'HEAD', '/_ping');
      (await upgrade(socketPath, '/grpc')).destroy();
    }
    await call(socketPath, 'GET', '/version');
    const engine = await Conversation.open(socketPath);
    const exporter = await engine.exporter();
    await engine.order(this.#files, { internal: true });
    const other = await Conversation.open(socketPath);
    await other.exporter();
    other.close();
    const attrs = { 'image-resolve-mode': 'local', filename: 'Dockerfile' };
    await engine.order(
      this.#files,
      { exporters: [{ type: exporter, attrs: { name } }], frontendAttrs: attrs },
      { frontend: 'dockerfile.v0', frontendOpt: attrs, allowResultReturn: true, allowResultArrayRef: true },
    );
    await engine.history();
    engine.close();
  }
}
