import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { chunkDied } from './buffer-collector.js';
import { freeReceived } from './free-received.js';

const BYTES = 64 << 20;
const body = Buffer.alloc(1 << 20, 'abcdefg');

const server = createServer((_, response) => {
  response.writeHead(200, { 'content-length': BYTES });
  let sent = 0;
  const send = (): void => {
    for (; sent < BYTES; sent += body.length) if (!response.write(body)) return void response.once('drain', more);
    response.end();
  };
  const more = (): void => {
    sent += body.length;
    send();
  };
  send();
});
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
after(() => {
  agent.destroy();
  server.close();
});

/** Reads a response, whose chunks it frees. Returns how many bytes were as they were sent, and in buffers at most. */
async function read(frees: boolean): Promise<{ readonly bytes: number; readonly most: number }> {
  const { port } = server.address() as AddressInfo;
  const [response] = (await once(get({ port, agent }), 'response')) as [IncomingMessage];
  if (frees) freeReceived(response);
  const before = process.memoryUsage().arrayBuffers;
  let [bytes, most] = [0, 0];
  response.on('data', (chunk: Buffer) => {
    const at = bytes % body.length;
    const first = Math.min(chunk.length, body.length - at);
    if (chunk.compare(body, at, at + first, 0, first) === 0) bytes += chunk.length;
    chunkDied(chunk);
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  });
  await once(response, 'end');
  return { bytes, most };
}

test('what a connection received is free when it is parsed, and the next response over it is whole', async () => {
  server.listen(0);
  await once(server, 'listening');
  for (const frees of [true, true, false, true]) {
    const { bytes, most } = await read(frees);
    assert.equal(bytes, BYTES);
    if (frees) assert.ok(most < 8 << 20, `${most} bytes were kept`);
    await turn();
  }
});
