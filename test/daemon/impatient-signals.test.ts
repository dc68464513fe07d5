/** A daemon that is told to end again and again ends as it is meant to, whatever its clients do. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Authority, tlsFlags } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { freePort } from '../support/free-port.js';
import { callJson } from '../support/http.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const CLIENTS = 40;
/** One end in five was an abort once. */
const ENDS = 8;

const cleanup = new Cleanup();
let engine: Engine;
let port: number;
let agent: Agent;

before(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'impatient-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  const ca = new Authority(dir, 'ca');
  const client = ca.issue('alice');
  port = await freePort();
  const args = ['-H', `tcp://127.0.0.1:${port}`, ...tlsFlags(ca.cert, ca.issueServer())];
  engine = await Engine.start(await withImage(engined({ args })));
  cleanup.add(() => engine.close());
  const [cert, key] = [readFileSync(client.cert), readFileSync(client.key)];
  agent = new Agent({ ca: readFileSync(ca.cert), cert, key, keepAlive: true, maxSockets: CLIENTS });
});
after(() => cleanup.run());

/** Starts a container that makes the end of the daemon take long. */
async function startStubborn(): Promise<string> {
  const json = { Image: SEEDED_IMAGE, Cmd: ['sh', '-c', 'trap "" TERM; while :; do sleep 0.1; done'] };
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`, {}, 204);
  return Id;
}

/** Resolves when the request is over, however that was. */
function ask(onReply: () => void): Promise<void> {
  return new Promise((resolve) => {
    const outgoing = request({ agent, host: '127.0.0.1', port, path: '/info', rejectUnauthorized: false }, (reply) => {
      reply.once('end', onReply).once('close', resolve).resume();
    });
    outgoing.once('error', () => resolve()).end();
  });
}

function interrupt(pid: number): void {
  try {
    process.kill(pid, 'SIGINT');
  } catch {
    // It has ended.
  }
}

test('three signals end it with status 1 while clients over TLS are busy', { timeout: 300_000 }, async () => {
  for (let end = 0; end < ENDS; end++) {
    const container = await startStubborn();
    const { pid } = engine;
    const state = { isOver: false, replies: 0 };
    const busy = new EventTarget();
    const clients = Array.from({ length: CLIENTS }, async () => {
      while (!state.isOver) await ask(() => ++state.replies === 5 * CLIENTS && busy.dispatchEvent(new Event('busy')));
    });
    await once(busy, 'busy');
    const ended = engine.stop('SIGTERM');
    // Two signals of one kind that wait together count as one.
    const again = setInterval(() => interrupt(pid), 5);
    const status = await ended.finally(() => clearInterval(again));
    state.isOver = true;
    agent.destroy();
    await Promise.all(clients);
    assert.equal(status, 1, engine.log.slice(-2000));
    await engine.start();
    await callJson(engine.socketPath, 'DELETE', `/containers/${container}?force=1`, {}, 204);
  }
});
