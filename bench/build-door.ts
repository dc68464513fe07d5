/**
 * A client that says to an engine all that buildx says for a build, from its first connection to its last, in a process
 * that runs already: a build without the start and the end of a program. Its directory has nothing but a Dockerfile. It
 * does little itself, so that what is measured is the engine: no library of HTTP/1 or of gRPC, whose work would be the
 * same for every engine.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { connect, type Socket } from 'node:net';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { GrpcClient, type CallMetadata } from '../src/http/buildkit/grpc-client.js';
import { decode, encode, frame, FrameReader } from '../src/http/buildkit/grpc-messages.js';
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

const CONTROL = '/moby.buildkit.v1.Control';
const BRIDGE = '/moby.buildkit.v1.frontend.LLBBridge';
const FILES = '/moby.filesync.v1.FileSync/DiffCopy';
const SHARED_KEY = 'X-Docker-Expose-Session-Sharedkey: bench:1';
const HEAD_END = '\r\n\r\n';

/** Sends a request, and returns the head of the reply; what comes behind it can be read from the connection. */
async function ask(socket: Socket, ...lines: readonly string[]): Promise<string> {
  socket.write(lines.join('\r\n') + HEAD_END);
  let head = Buffer.alloc(0);
  while (!head.includes(HEAD_END)) {
    await once(socket, 'readable');
    const piece = socket.read() as Buffer | null;
    if (piece === null) throw new Error(`the connection ended after ${head.toString('latin1')}`);
    head = Buffer.concat([head, piece]);
  }
  const end = head.indexOf(HEAD_END) + HEAD_END.length;
  if (end < head.length) socket.unshift(head.subarray(end));
  return head.toString('latin1', 0, end);
}

function requireStatus(head: string, status: number): void {
  if (!head.startsWith(`HTTP/1.1 ${status} `)) throw new Error(`the engine replied ${head}`);
}

async function upgrade(socketPath: string, path: string, ...headers: readonly string[]): Promise<Socket> {
  const socket = connect(socketPath);
  const lines = [`POST ${path} HTTP/1.1`, 'Host: ', 'Content-Length: 0', 'Connection: Upgrade', 'Upgrade: h2c'];
  requireStatus(await ask(socket, ...lines, ...headers), 101);
  return socket;
}

/** Opens a connection and asks whether there is somebody. */
async function ping(socketPath: string): Promise<Socket> {
  const socket = connect(socketPath);
  requireStatus(await ask(socket, 'HEAD /_ping HTTP/1.1', 'Host: api.moby.localhost'), 200);
  return socket;
}

/** Reads the version on a connection that has been used before. */
async function readVersion(socket: Socket): Promise<void> {
  const head = await ask(socket, 'GET /v1.51/version HTTP/1.1', 'Host: api.moby.localhost');
  requireStatus(head, 200);
  let left = Number(/^content-length: *(\d+)/im.exec(head)?.[1]);
  while (left > 0) {
    const piece = socket.read() as Buffer | null;
    if (piece === null) await once(socket, 'readable');
    else left -= piece.length;
  }
}

/** The directory that a client builds, with one file. */
function sessionServer(dockerfile: Buffer): Http2Server {
  const packet = (message: MessageInitShape<typeof PacketSchema>): Buffer => frame(encode(PacketSchema, message));
  const size = BigInt(dockerfile.length);
  const found = packet({ type: Packet_Type.STAT, stat: { path: 'Dockerfile', mode: 0o644, size, modTime: 1n } });
  const end = packet({ type: Packet_Type.STAT });
  const diffCopy = (stream: ServerHttp2Stream, wanted: readonly string[]): void => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.write(wanted.includes('Dockerfile') ? Buffer.concat([found, end]) : end);
    const reader = new FrameReader();
    stream.on('data', (piece: Buffer) => {
      for (const message of reader.push(piece)) {
        const { type, id } = decode(PacketSchema, message);
        if (type === Packet_Type.REQ)
          stream.write(
            Buffer.concat([
              packet({ type: Packet_Type.DATA, id, data: dockerfile }),
              packet({ type: Packet_Type.DATA, id }),
            ]),
          );
        else if (type === Packet_Type.FIN) stream.end(packet({ type: Packet_Type.FIN }));
      }
    });
  };
  const server = createServer();
  server.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    if (headers[':path'] !== FILES) return stream.respond({ ':status': 200, 'grpc-status': '12' }, { endStream: true });
    // Node joins the values that come one by one.
    diffCopy(
      stream,
      [headers['followpaths'] ?? []].flat().flatMap((values) => values.split(', ')),
    );
  });
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
    files: Http2Server,
    order: SolveOrder,
    frontend?: MessageInitShape<typeof FrontendRequestSchema>,
  ): Promise<void> {
    const [ref, session] = [randomBytes(12).toString('hex'), randomBytes(12).toString('hex')];
    const metadata = { 'buildkit-controlapi-buildid': ref };
    const serve = async (): Promise<Socket> => {
      const uuid = `X-Docker-Expose-Session-Uuid: ${session}`;
      const methods = `X-Docker-Expose-Session-Grpc-Method: ${FILES}`;
      const socket = await upgrade(this.#socketPath, '/session', uuid, SHARED_KEY, methods);
      files.emit('connection', socket);
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
  readonly #files: Http2Server;

  constructor(socketPath: string, dockerfile: string) {
    this.#socketPath = socketPath;
    this.#files = sessionServer(Buffer.from(dockerfile));
  }

  /** Builds an image of this name. @throws what the engine says. */
  async build(name: string): Promise<void> {
    const socketPath = this.#socketPath;
    // Each part of buildx looks for itself, and leaves its connection to the end.
    const looks: Socket[] = [];
    const look = async (): Promise<Socket> => {
      const socket = await ping(socketPath);
      looks.push(socket);
      return socket;
    };
    await look();
    (await upgrade(socketPath, '/grpc')).destroy();
    await look();
    await look();
    (await upgrade(socketPath, '/grpc')).destroy();
    await readVersion(await look());
    const engine = await Conversation.open(socketPath);
    await engine.exporter();
    await engine.order(this.#files, { internal: true });
    const other = await Conversation.open(socketPath);
    await other.exporter();
    other.close();
    const exporter = await engine.exporter();
    const attrs = { 'image-resolve-mode': 'local', filename: 'Dockerfile' };
    await engine.order(
      this.#files,
      { exporters: [{ type: exporter, attrs: { name } }], frontendAttrs: attrs },
      { frontend: 'dockerfile.v0', frontendOpt: attrs, allowResultReturn: true, allowResultArrayRef: true },
    );
    await engine.history();
    engine.close();
    for (const socket of looks) socket.destroy();
  }
}
