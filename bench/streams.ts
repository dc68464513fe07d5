/**
 * The cost of clients of streams: 1000 readers of events and 200 followers of a log at once, of which none may miss
 * anything, and what is left after 10,000 that connect and vanish (RESETS=n for more: dockerd runs out of descriptors).
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { callJson } from '../test/support/http.js';
import { connectAndLeave, inParallel, openDescriptors, streamRequests } from '../test/support/connect-and-reset.js';
import type { Engine } from '../test/support/engine.js';
import { waitFor } from '../test/support/wait.js';
import { createContainer, removeContainer, startContainer } from './containers.js';
import type { Measure } from './measure.js';
import { residentBytes } from './resident-memory.js';

const SUBSCRIBERS = 1000;
const FOLLOWERS = 200;
const EVENTS = 200;
const RESETS = Number(process.env['RESETS'] ?? 10_000);
const SETTLE_MS = 3000;
const MIB = 2 ** 20;

export const streams: Measure = {
  name: 'streams',
  metrics: [
    { name: '1000 event readers and 200 log followers', unit: 'MiB', target: 1, moreIsBetter: false },
    { name: `memory left by ${RESETS} resets`, unit: 'MiB', target: 1, moreIsBetter: false },
    { name: `descriptors left by ${RESETS} resets`, unit: 'descriptors', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    const id = await createContainer(engine, {
      image,
      command: ['sh', '-c', 'while true; do echo line; sleep 0.1; done'],
    });
    await startContainer(engine, id);
    return async () => {
      const held = await growthWithReaders(engine, id);
      const left = await leftByResets(engine, id);
      await removeContainer(engine, id);
      return {
        '1000 event readers and 200 log followers': held / MIB,
        [`memory left by ${RESETS} resets`]: left.bytes / MIB,
        [`descriptors left by ${RESETS} resets`]: left.descriptors,
      };
    };
  },
};

async function growthWithReaders(engine: Engine, id: string): Promise<number> {
  const before = residentBytes(engine.pid);
  const readers = await openAll(
    engine,
    SUBSCRIBERS,
    `/events?filters=${encodeURIComponent('{"event":["exec_create"]}')}`,
  );
  const followers = await openAll(engine, FOLLOWERS, `/containers/${id}/logs?stdout=1&follow=1&tail=0`);
  for (let i = 0; i < EVENTS; i++)
    await callJson(engine.socketPath, 'POST', `/containers/${id}/exec`, { json: { Cmd: ['true'] } }, 201);
  const behind = (): number =>
    readers.filter(({ counts }) => counts('exec_create') < EVENTS).length +
    followers.filter(({ counts }) => counts('line') < 10).length;
  await waitFor(
    () => `${behind()} readers to get everything`,
    () => behind() === 0,
    60_000,
    200,
  );
  const growth = residentBytes(engine.pid) - before;
  for (const { socket } of [...readers, ...followers]) socket.destroy();
  await sleep(SETTLE_MS);
  return growth;
}

interface Reader {
  readonly socket: Socket;
  /** How often a word came. */
  readonly counts: (word: string) => number;
}

async function openAll(engine: Engine, count: number, path: string): Promise<Reader[]> {
  const readers: Reader[] = [];
  await inParallel(count, 32, async () => {
    const socket = connect({ path: engine.socketPath });
    await once(socket, 'connect');
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    await waitFor('the head', () => text.includes('\r\n\r\n'), 60_000);
    readers.push({
      socket,
      counts: (word) => text.split(`"Action":"${word}`).length - 1 || text.split(word).length - 1,
    });
  });
  return readers;
}

async function leftByResets(
  engine: Engine,
  id: string,
): Promise<{ readonly bytes: number; readonly descriptors: number }> {
  const kinds = streamRequests(id);
  const cycle = async (turn: number): Promise<void> =>
    connectAndLeave(
      { path: engine.socketPath },
      String(await kinds[turn % kinds.length]?.bytes()),
      Math.floor(turn / kinds.length),
    );
  // The first ones fill what is used again.
  await inParallel(Math.min(RESETS / 10, 5000), 32, cycle);
  await sleep(SETTLE_MS);
  const [before, fds] = [residentBytes(engine.pid), openDescriptors(engine.pid)];
  await inParallel(RESETS, 32, cycle);
  // Time to find out that the last ones are gone.
  await sleep(3 * SETTLE_MS);
  return { bytes: residentBytes(engine.pid) - before, descriptors: openDescriptors(engine.pid) - fds };
}
