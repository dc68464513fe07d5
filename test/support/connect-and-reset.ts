/** Clients that ask for a stream and go away at once, by a reset or by a close, again and again. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { readdirSync, readFileSync } from 'node:fs';

export interface StreamRequest {
  readonly name: string;
  /** Makes the bytes of one request; asynchronous where something has to be prepared for it. */
  readonly bytes: () => string | Promise<string>;
}

const UPGRADE = 'Connection: Upgrade\r\nUpgrade: tcp\r\n';
const WEBSOCKET =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n' +
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

/** Streams of a running container with stdin; all but those of exec. */
export function streamRequests(id: string): readonly StreamRequest[] {
  const request = (name: string, line: string, headers = ''): StreamRequest => ({
    name,
    bytes: () => `${line} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`,
  });
  return [
    request('logs', `GET /containers/${id}/logs?stdout=1&stderr=1&follow=1&tail=10`),
    request('attach', `POST /containers/${id}/attach?stream=1&stdin=1&stdout=1&stderr=1`, UPGRADE),
    request('events', 'GET /events'),
    request('stats', `GET /containers/${id}/stats`),
    request('attach/ws', `GET /containers/${id}/attach/ws?stream=1&stdin=1&stdout=1`, WEBSOCKET),
  ];
}

/**
 * Sends a request and leaves: before the reply, at its head, or some bytes into it, by turns.
 * @param reset by RST, else by an orderly close of both directions.
 */
export async function connectAndLeave(
  target: { readonly host: string; readonly port: number } | { readonly path: string },
  bytes: string,
  turn: number,
): Promise<void> {
  const socket = connect(target);
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write(bytes);
  if (turn % 3 !== 0) await Promise.race([once(socket, 'data'), once(socket, 'close')]);
  const closed = once(socket, 'close');
  if ('port' in target && turn % 2 === 0) socket.resetAndDestroy();
  else socket.destroy();
  await closed;
}

/** Runs `one` for each number below `count`, some of them at a time. */
export async function inParallel(
  count: number,
  concurrency: number,
  one: (index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const run = async (): Promise<void> => {
    while (next < count) await one(next++);
  };
  await Promise.all(Array.from({ length: concurrency }, run));
}

export function openDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** Returns how many connections a daemon has that it has accepted at this socket, and not closed yet (proc_net(5)). */
export function acceptedAt(socketPath: string): number {
  const connected = '03';
  return readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[5] === connected && fields[7] === socketPath).length;
}

/**
 * Returns the memory of a process without the pages of files: an idle daemon lets go of those of its program, and takes
 * them back with its next work.
 */
export function ownBytes(pid: number): number {
  return Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}
