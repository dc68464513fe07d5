/** The daemon goes on serving its clients when somebody opens connections to a published port without end. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined, isTestingDockerd } from '../support/engined.js';
import { endProcess, startInside } from '../support/host-networks.js';
import { call } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const DESCRIPTORS = 1024;
const GROUPS = 10;
/** So many are taken by the kernel at once; it forgets a connection that finds the queue full. */
const CLIENTS = 100;
const GREETING = 'hi';
const SERVER =
  `require('node:net').createServer((client) => client.on('error', () => 0).write('${GREETING}'))` +
  `.listen(80, '0.0.0.0', () => console.log('ready'))`;
const cleanup = new Cleanup();
after(() => cleanup.run());

/** Resolves with what the server says, and '' when the connection is closed. */
function ask(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.once('data', (bytes) => resolve(String(bytes)));
    socket.on('error', () => resolve(''));
    socket.once('close', () => resolve(''));
  });
}

test('connections through the proxy leave descriptors for all else', { skip: isTestingDockerd() }, async () => {
  const kind = engined({ args: [] });
  const { engine, image } = await startEngineWithImage(cleanup, {
    ...kind,
    command: (dir, socket) => ['prlimit', `--nofile=${DESCRIPTORS}:${DESCRIPTORS}`, ...kind.command(dir, socket)],
  });
  await engineOk(engine, ['run', '-d', '--name', 'server', '-p', '127.0.0.1:0:80', image, 'sleep', '1000']);
  const pid = await engineOk(engine, ['inspect', '-f', '{{.State.Pid}}', 'server']);
  const port = Number((await engineOk(engine, ['port', 'server', '80'])).split(':').at(-1));
  const server = startInside(`/proc/${pid}/ns/net`, process.execPath, '-e', SERVER);
  cleanup.add(() => endProcess(server));
  await once(server.stdout, 'data');
  const clients: Socket[] = [];
  const answers: string[] = [];
  try {
    for (let group = 0; group < GROUPS; group++) {
      const added = Array.from({ length: CLIENTS }, () => connect(port, '127.0.0.1'));
      clients.push(...added);
      answers.push(...(await Promise.all(added.map(ask))));
    }
    const served = answers.filter((answer) => answer === GREETING).length;
    assert.equal(served, DESCRIPTORS / 2 / 2);
    assert.equal((await call(engine.socketPath, 'GET', '/_ping')).status, 200);
    await engineOk(engine, ['exec', 'server', 'true']);
  } finally {
    for (const client of clients) client.destroy();
  }
  await waitFor('a new connection to be served', async () => {
    const client = connect(port, '127.0.0.1');
    const answer = await ask(client);
    client.destroy();
    return answer === GREETING;
  });
  await engineOk(engine, ['rm', '-f', 'server']);
});
