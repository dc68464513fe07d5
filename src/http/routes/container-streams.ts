/** Routes that carry a container's bytes: attach and logs. */
import type { Duplex } from 'node:stream';
import { conflict, invalid } from '../../errors/engine-error.js';
import { parseDetachKeys, DetachScanner } from '../../logs/attach/detach-keys.js';
import type { LogDriver, LogReadOptions } from '../../ports/logs.js';
import type { ContainerDirectory } from '../../actors/container/directory.js';
import type { ContainerIo, ContainerIoRegistry } from '../../actors/container/streams/container-io.js';
import { loggedContainer } from '../../actors/container/streams/logged-container.js';
import { isRunning, type ContainerRecord } from '../../actors/container/container.record.js';
import type { ContainerServices } from '../../actors/container/services.js';
import type { Exchange } from '../exchange.js';
import { parseUnixTime } from '../api/unix-time.js';
import { givePiece } from '../../sys/files/piece-pool.js';
import { copyInput, onceInputEnds } from '../copy-input.js';
import { endWithClient } from '../gone-client.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';
import { openWebSocket, requireWebSocket } from '../websocket/handshake.js';

export interface StreamRouteDeps {
  readonly containers: ContainerDirectory;
  readonly ios: ContainerIoRegistry;
  readonly logs: LogDriver;
  readonly services: ContainerServices;
  /** Returns the directory of a container's files. */
  dir(id: string): string;
}

export const RAW_STREAM = 'application/vnd.docker.raw-stream';
const MULTIPLEXED_STREAM = 'application/vnd.docker.multiplexed-stream';

/**
 * Returns the media type of a stream. The bytes are framed without a terminal at every version; only the label came
 * with 1.42.
 */
export function streamType(x: Exchange, tty: boolean): string {
  return !tty && x.atLeast(1, 42) ? MULTIPLEXED_STREAM : RAW_STREAM;
}

export function containerStreamRoutes(deps: StreamRouteDeps): Route[] {
  return [
    route('POST', '/containers/{name...}/attach', (x) => attach(deps, x), { hijack: 'after-head' }),
    route('GET', '/containers/{name...}/attach/ws', (x) => attachWebSocket(deps, x), { hijack: 'after-body' }),
    route('GET', '/containers/{name...}/logs', (x) => sendLogs(deps, x)),
  ];
}

/** The options of an attach request, and its container. */
interface AttachRequest {
  readonly record: ContainerRecord;
  readonly io: ContainerIo;
  readonly wants: {
    readonly stdin: boolean;
    readonly stdout: boolean;
    readonly stderr: boolean;
    readonly logs: boolean;
    readonly stream: boolean;
  };
  readonly detachKeys: Buffer;
  /** Output is framed by stream. */
  readonly multiplexed: boolean;
}

/**
 * Reads an attach request.
 * @throws EngineError not-found, conflict for a container that cannot be attached to now, invalid for detach keys.
 */
function attachRequest(deps: StreamRouteDeps, x: Exchange): AttachRequest {
  const detachKeys = parseDetachKeys(x.query.text('detachKeys'), (text) =>
    invalid(`Invalid detach keys (${text}) provided`),
  );
  const record = deps.containers.find(x.param('name'));
  if (record.state.status === 'paused')
    throw conflict(`container ${x.param('name')} is paused, unpause the container before attach`);
  if (record.state.status === 'restarting')
    throw conflict(`Container ${record.id} is restarting, wait until the container is running`);
  const wants = {
    stdin: x.query.flag('stdin'),
    stdout: x.query.flag('stdout'),
    stderr: x.query.flag('stderr'),
    logs: x.query.flag('logs'),
    stream: x.query.flag('stream'),
  };
  return { record, io: deps.ios.get(record.id), wants, detachKeys, multiplexed: !record.config.Tty };
}

async function attach(deps: StreamRouteDeps, x: Exchange): Promise<void> {
  let request: AttachRequest;
  try {
    request = attachRequest(deps, x);
  } catch (error) {
    // Clients have given the connection up to the stream by now, and read errors from there.
    return x.sendHijackError(error);
  }
  const socket = await x.hijack({ contentType: streamType(x, request.record.config.Tty), commonHeaders: false });
  socket.on('error', () => socket.destroy());
  await serveAttached(deps, request, socket);
}

async function attachWebSocket(deps: StreamRouteDeps, x: Exchange): Promise<void> {
  const request = attachRequest(deps, x);
  requireWebSocket(x);
  // Older versions attached all three whatever the parameters said, and sent text.
  const wants = x.atLeast(1, 42) ? request.wants : { ...request.wants, stdin: true, stdout: true, stderr: true };
  const socket = await openWebSocket(x, x.atLeast(1, 28) ? 'binary' : 'text');
  // A WebSocket client tells messages apart, but finds no frames in them.
  await serveAttached(deps, { ...request, wants, multiplexed: false }, socket);
}

/** Copies between a client and a container until one of them ends. */
async function serveAttached(
  deps: StreamRouteDeps,
  { record, io, wants, detachKeys, multiplexed }: AttachRequest,
  socket: Duplex & { readonly fd: number },
): Promise<void> {
  deps.services.emit('attach', record);
  if (wants.logs) await replay(deps, record, io, { ...wants, multiplexed }, socket);
  if (!wants.stream) return void socket.end();
  if (socket.destroyed) return;
  const gone = new AbortController();
  const leave = io.hub.subscribe({ stdout: wants.stdout, stderr: wants.stderr, multiplexed }, socket);
  socket.once('close', () => (gone.abort(), leave()));
  if (!wants.stdin || !record.config.OpenStdin) {
    // A client that only listens closes its sending side at once, and must still get all output.
    endWithClient(socket);
    socket.resume();
    return;
  }
  // Without a terminal and with StdinOnce, the end of the client's input ends the input of the process; else it ends
  // only this attachment.
  const endsProcessInput = record.config.StdinOnce && !record.config.Tty;
  const detach = (): void => {
    leave();
    socket.end();
  };
  // The end of input is noticed without a process: the container may never start.
  if (!endsProcessInput) onceInputEnds(socket, detach);
  const stdin = await io.stdin(gone.signal);
  // Not earlier: the end of its input is for the process, which may start after it has left.
  endWithClient(socket);
  if (!stdin) return void socket.resume();
  copyInput(socket, stdin, record.config.Tty ? new DetachScanner(detachKeys) : undefined, {
    onDetach: () => {
      deps.services.emit('detach', record);
      detach();
    },
    onEnd: () => {
      if (endsProcessInput) void io.closeStdin(record.id);
    },
  });
}

async function replay(
  deps: StreamRouteDeps,
  record: ContainerRecord,
  io: ContainerIo,
  wants: { stdout: boolean; stderr: boolean; multiplexed: boolean },
  socket: Duplex,
): Promise<void> {
  const pieces = readLog(deps, record, io, {
    stdout: wants.stdout,
    stderr: wants.stderr,
    follow: false,
    timestamps: false,
    details: false,
    sinceNs: undefined,
    untilNs: undefined,
    tail: undefined,
    multiplexed: wants.multiplexed,
  });
  for await (const piece of pieces) {
    if (socket.destroyed) return;
    if (!socket.write(piece))
      await new Promise<void>((resolve) => socket.once('drain', resolve).once('close', resolve));
  }
}

async function sendLogs(deps: StreamRouteDeps, x: Exchange): Promise<void> {
  const record = deps.containers.find(x.param('name'));
  const [stdout, stderr] = [x.query.flag('stdout'), x.query.flag('stderr')];
  if (!stdout && !stderr) throw invalid('Bad parameters: you must choose at least one stream');
  if (record.state.status === 'removing' || record.state.status === 'dead')
    throw conflict('can not get logs from container which is dead or marked for removal');
  const tail = x.query.text('tail');
  const until = x.query.text('until') ?? '';
  const options: LogReadOptions = {
    stdout,
    stderr,
    follow: x.query.flag('follow') && isRunning(record),
    timestamps: x.query.flag('timestamps'),
    details: x.query.flag('details'),
    sinceNs: parseUnixTime('since', x.query.text('since') ?? ''),
    untilNs: until === '0' ? undefined : parseUnixTime('until', until),
    tail: tail !== undefined && /^\d+$/.test(tail) ? Number(tail) : undefined,
    multiplexed: !record.config.Tty,
  };
  const log = readLog(deps, record, deps.ios.get(record.id), options);
  const headers = { 'Content-Type': streamType(x, record.config.Tty) };
  const pieces = options.follow ? log : await begun(log);
  const reply = x.stream(200, headers, { isEndless: options.follow, followsContainer: true });
  await pump(pieces, reply, { onSent: givePiece });
}

/** Reads the first piece before the reply begins, so that a log that cannot be read is an error for the client. */
async function begun(pieces: AsyncIterableIterator<Buffer>): Promise<AsyncIterable<Buffer>> {
  const first = await pieces.next();
  return (async function* () {
    try {
      if (first.done === true) return;
      yield first.value;
      yield* pieces;
    } finally {
      await pieces.return?.();
    }
  })();
}

function readLog(
  deps: StreamRouteDeps,
  record: ContainerRecord,
  io: ContainerIo,
  options: LogReadOptions,
): AsyncIterableIterator<Buffer> {
  if (io.log) return io.log.read(options);
  return deps.logs.read(loggedContainer(record, deps.dir(record.id)), options);
}
