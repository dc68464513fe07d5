/** Sends malformed requests to a real daemon, many at a time. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import type { MalformedCase } from './malformed-http.js';

export const CASES = Number(process.env['FUZZ_CASES'] ?? 1200);
export const SEED = Number(process.env['FUZZ_SEED'] ?? 1);
const CONCURRENCY = 32;
/** How long a client waits for an answer that may never come, since its request never ends. */
const PATIENCE_MS = 100;

/** Requests that are fine, and change nothing that stays. */
export const ROUTES = [
  'GET /_ping',
  'GET /version',
  'GET /v1.41/containers/json',
  'GET /containers/absent/json',
  'GET /containers/absent/logs?stdout=1',
  'GET /images/json',
  'GET /events?until=1',
  'GET /volumes',
  'POST /containers/create',
  'POST /containers/absent/start',
  'POST /containers/absent/attach?stream=1',
  'POST /v1.30/containers/absent/attach?stream=1&stdin=1',
  'POST /containers/absent/exec',
  'POST /exec/absent/start',
  'POST /containers/absent/wait',
  'POST /images/create',
  'POST /commit',
  'PUT /containers/absent/archive?path=/',
  'DELETE /containers/absent',
  'GET /containers/absent/attach/ws',
  'POST /session',
  'POST /grpc',
  'OPTIONS /x',
];

/** Sends a case and returns the bytes that came back, as far as they came. @param port of the same daemon on TCP. */
export async function send({ pieces, ending }: MalformedCase, socketPath: string, port: number): Promise<string> {
  // Only tcp has resets.
  const socket = connect({
    ...(ending === 'reset' ? { host: '127.0.0.1', port } : { path: socketPath }),
    allowHalfOpen: true,
  });
  let received = '';
  socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
  const over = new Promise<void>((resolve) => {
    socket.once('end', resolve);
    socket.once('error', () => resolve());
    socket.once('close', () => resolve());
  });
  await Promise.race([once(socket, 'connect'), over]).catch(() => undefined);
  for (const piece of pieces) {
    socket.write(piece);
    if (pieces.length > 1) await turn();
  }
  if (ending === 'half-close') socket.end();
  if (ending === 'wait' || ending === 'half-close') await Promise.race([over, sleep(PATIENCE_MS)]);
  if (ending === 'close') await turn();
  if (ending === 'reset') socket.resetAndDestroy();
  else socket.destroy();
  return received;
}

export async function inParallel(count: number, one: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: CONCURRENCY }, async () => {
      while (next < count) await one(next++);
    }),
  );
}

/** Status codes of the answers in what came back. */
export const statuses = (reply: string): number[] =>
  [...reply.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]));
