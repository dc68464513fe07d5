/** Routes that carry a container's bytes: attach and logs. */
import type { Socket } from 'node:net';
import { conflict, invalid } from '../../errors/engine-error.js';
import { parseDetachKeys, DetachScanner } from '../../logs/detach-keys.js';
import type { LogDriver, LogReadOptions } from '../../ports/logs.js';
import type { ContainerDirectory } from '../../actors/container/directory.js';
import type { ContainerIo, ContainerIoRegistry } from '../../actors/container/container-io.js';
import { isRunning, type ContainerRecord } from '../../actors/container/container.record.js';
import type { ContainerServices } from '../../actors/container/services.js';
import type { Exchange } from '../exchange.js';
import { parseUnixTime } from '../api/unix-time.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';

export interface StreamRouteDeps {
  readonly containers: ContainerDirectory;
  readonly ios: ContainerIoRegistry;
  readonly logs: LogDriver;
  readonly services: ContainerServices;
  /** Directory of a container's files. */
  dir(id: string): string;
}

export const RAW_STREAM = 'application/vnd.docker.raw-stream';
const MULTIPLEXED_STREAM = 'application/vnd.docker.multiplexed-stream';

/** The media type of a stream: the bytes are framed without a terminal at every version, only the label came with 1.42. */
export function streamType(x: Exchange, tty: boolean): string {
  return !tty && x.atLeast(1, 42) ? MULTIPLEXED_STREAM : RAW_STREAM;
}

export function containerStreamRoutes(deps: StreamRouteDeps): Route[] {
  return [
    route('POST', '/containers/{name...}/attach', (x) => attach(deps, x), { hijack: 'after-head' }),
    route('GET', '/containers/{name...}/logs', (x) => sendLogs(deps, x)),
  ];
}

async function attach(deps: StreamRouteDeps, x: Exchange): Promise<void> {
  const record = deps.containers.find(x.param('name'));
  if (record.state.status === 'paused') throw conflict(`container ${x.param('name')} is paused, unpause the container before attach`);
  if (record.state.status === 'restarting') throw conflict(`Container ${record.id} is restarting, wait until the container is running`);
  const tty = record.config.Tty;
  const wants = { stdin: x.query.flag('stdin'), stdout: x.query.flag('stdout'), stderr: x.query.flag('stderr'), logs: x.query.flag('logs'), stream: x.query.flag('stream') };
  const detachKeys = parseDetachKeys(x.query.text('detachKeys'), (text) => invalid(`Invalid detach keys (${text}) provided`));
  const io = deps.ios.get(record.id);
  const socket = await x.hijack({ contentType: streamType(x, tty), commonHeaders: false });
  deps.services.emit('attach', record);
  socket.on('error', () => socket.destroy());
  if (wants.logs) await replay(deps, record, io, wants, socket);
  if (!wants.stream) return void socket.end();
  const gone = new AbortController();
  const leave = io.hub.subscribe({ stdout: wants.stdout, stderr: wants.stderr, multiplexed: !tty }, socket);
  socket.once('close', () => (gone.abort(), leave()));
  if (wants.stdin && record.config.OpenStdin) {
    await feedStdin(deps, record, io, socket, gone.signal, tty ? new DetachScanner(detachKeys) : undefined, leave);
  } else {
    // Somebody who only listens closes his sending side at once, and must still get all output.
    socket.resume();
  }
}

/** Copies what the client types into the container until one of them ends. */
async function feedStdin(
  deps: StreamRouteDeps,
  record: ContainerRecord,
  io: ContainerIo,
  socket: Socket,
  gone: AbortSignal,
  scanner: DetachScanner | undefined,
  leave: () => void,
): Promise<void> {
  const stdin = await io.stdin(gone);
  if (!stdin) return;
  const detach = (): void => {
    leave();
    socket.end();
  };
  stdin.once('close', () => socket.resume());
  socket.on('data', (chunk: Buffer) => {
    const typed = scanner ? scanner.push(chunk) : { data: chunk, detached: false };
    if (typed.data.length > 0 && !stdin.destroyed && !stdin.write(typed.data)) {
      socket.pause();
      stdin.once('drain', () => socket.resume());
    }
    if (typed.detached) {
      deps.services.emit('detach', record);
      detach();
    }
  });
  socket.once('end', () => {
    // Without a terminal and with StdinOnce the end of input is the process's end of input; else it ends this attach only.
    if (record.config.StdinOnce && !record.config.Tty) void io.closeStdin(record.id);
    else detach();
  });
  socket.resume();
}

async function replay(deps: StreamRouteDeps, record: ContainerRecord, io: ContainerIo, wants: { stdout: boolean; stderr: boolean }, socket: Socket): Promise<void> {
  const pieces = readLog(deps, record, io, {
    stdout: wants.stdout,
    stderr: wants.stderr,
    follow: false,
    timestamps: false,
    details: false,
    sinceNs: undefined,
    untilNs: undefined,
    tail: undefined,
    multiplexed: !record.config.Tty,
  });
  for await (const piece of pieces) {
    if (socket.destroyed) return;
    if (!socket.write(piece)) await new Promise<void>((resolve) => socket.once('drain', resolve).once('close', resolve));
  }
}

async function sendLogs(deps: StreamRouteDeps, x: Exchange): Promise<void> {
  const record = deps.containers.find(x.param('name'));
  const [stdout, stderr] = [x.query.flag('stdout'), x.query.flag('stderr')];
  if (!stdout && !stderr) throw invalid('Bad parameters: you must choose at least one stream');
  if (record.state.status === 'removing' || record.state.status === 'dead') throw conflict('can not get logs from container which is dead or marked for removal');
  const tail = x.query.text('tail');
  const until = x.query.text('until') ?? '';
  const options: LogReadOptions = {
    stdout,
    stderr,
    follow: x.query.flag('follow') && isRunning(record),
    timestamps: x.query.flag('timestamps'),
    details: x.query.flag('details'),
    sinceNs: parseUnixTime(x.query.text('since') ?? ''),
    untilNs: until === '0' ? undefined : parseUnixTime(until),
    tail: tail !== undefined && /^\d+$/.test(tail) ? Number(tail) : undefined,
    multiplexed: !record.config.Tty,
  };
  const pieces = readLog(deps, record, deps.ios.get(record.id), options);
  await pump(pieces, x.stream(200, { 'Content-Type': streamType(x, record.config.Tty) }));
}

function readLog(deps: StreamRouteDeps, record: ContainerRecord, io: ContainerIo, options: LogReadOptions): AsyncIterableIterator<Buffer> {
  if (io.log) return io.log.read(options);
  const { Type, Config } = record.hostConfig.LogConfig;
  return deps.logs.read({ id: record.id, dir: deps.dir(record.id), driver: Type, options: Config }, options);
}
