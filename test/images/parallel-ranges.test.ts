/**
 * A large blob over a line that gives each connection only so much: more connections, the same bytes, each of them
 * once.
 */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { startCuttingProxy } from '../support/cutting-proxy.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startFaultyServer } from '../support/faulty-registry.js';
import { callJson } from '../support/http.js';
import { type BuiltImage, buildImage, generatedLayer, pushImage } from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';

const MB = 1 << 20;
const cleanup = new Cleanup();
let engine: Engine;
let registry: TestRegistry;
let image: BuiltImage;

before(async () => {
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  engine = await Engine.start(engined({ file: { 'max-concurrent-downloads': 4 } }));
  cleanup.add(() => engine.close());
  image = buildImage({
    layers: [generatedLayer({ root: 'd', bytes: 48 * MB, files: 20, seed: 9, compression: 'none' })],
  });
  await pushImage(registry.url, 'large', '1', image);
});
after(() => cleanup.run());

/** Pulls through the proxy and takes the image away again; bytes that came more than once, and connections. */
async function extraOf(
  options: Parameters<typeof startCuttingProxy>[1],
): Promise<{ readonly extra: number; readonly connections: number; readonly cuts: number }> {
  const proxy = await startCuttingProxy(registry.host, options);
  try {
    const reference = `${proxy.host}/large:1`;
    await pullOk(engine, reference);
    assert.equal((await callJson<{ Id: string }>(engine.socketPath, 'GET', `/images/${reference}/json`)).Id, image.id);
    await callJson(engine.socketPath, 'DELETE', `/images/${reference}`);
    const total = image.layers.reduce((sum, { blob }) => sum + blob.length, 0);
    return { extra: proxy.downBytes - total, connections: proxy.connections, cuts: proxy.cuts };
  } finally {
    await proxy.stop();
  }
}

async function reload(content: unknown): Promise<void> {
  await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify(content));
  await callJson(engine.socketPath, 'POST', '/engine/config/reload');
}

test('a slow line gets more connections', async (t) => {
  const begin = performance.now();
  // So slow that the wait for the line is most of the time on a busy machine, too.
  const { extra, connections } = await extraOf({ downPerSecond: 2 * MB });
  t.diagnostic(`${Math.round(performance.now() - begin)} ms, ${connections} connections, ${extra} bytes again`);
  assert.ok(connections >= 7, String(connections));
  // The first connection is left with what is on its way.
  assert.ok(extra < 7 * MB, String(extra));
});

test('with max-concurrent-downloads 1 a slow line has one', async (t) => {
  await reload({ 'max-concurrent-downloads': 1 });
  // Slow enough for more connections, and not longer than need be.
  const { connections } = await extraOf({ downPerSecond: 12 * MB });
  await reload({ 'max-concurrent-downloads': 4 });
  t.diagnostic(`${connections} connections`);
  assert.ok(connections < 6, String(connections));
});

test('connections that break in the middle of a piece go on there', async (t) => {
  // A connection carries one piece of 4 MB and a part of the next. The first one is slow enough to be joined by others.
  const { extra, connections, cuts } = await extraOf({ downPerSecond: 2 * MB, down: 5 * MB });
  t.diagnostic(`${connections} connections, ${cuts} cuts, ${extra} bytes again`);
  assert.ok(cuts > 2, String(cuts));
  assert.ok(extra < 7 * MB, String(extra));
});

test('with one concurrent download a blob has one connection, however slow it is', async () => {
  const small = buildImage({
    layers: [generatedLayer({ root: 'd', bytes: 28 * MB, files: 5, seed: 10, compression: 'none' })],
  });
  const server = await startFaultyServer();
  let [open, most] = [0, 0];
  /** Sends more than it is asked for, as long as somebody takes it. */
  let isGenerous = false;
  let tooMuchBytes = 0;
  for (const reference of ['latest', small.digest])
    server.documents.set(`/v2/slow/manifests/${reference}`, { body: small.manifest, type: small.mediaType });
  server.documents.set(`/v2/slow/blobs/${small.id}`, { body: small.config });
  server.intercept = (request, response) => {
    const blob = small.layers.find(({ digest }) => request.url === `/v2/slow/blobs/${digest}`)?.blob;
    if (!blob) return false;
    const [, first = '0', last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const body = blob.subarray(Number(first), last ? Number(last) + 1 : undefined);
    const range = { 'content-range': `bytes ${first}-${Number(first) + body.length - 1}/${blob.length}` };
    const goesOn = isGenerous && last !== undefined && last !== '';
    response.writeHead(request.headers.range ? 206 : 200, {
      ...(!goesOn && { 'content-length': body.length }),
      'accept-ranges': 'bytes',
      ...(request.headers.range ? range : {}),
    });
    most = Math.max(most, ++open);
    // The client asks for its next piece once it has the last byte of this one, before this response is closed.
    const isOver = new AbortController();
    isOver.signal.addEventListener('abort', () => open--, { once: true });
    let at = 0;
    const timer = setInterval(() => {
      const piece = body.subarray(at, (at += MB / 8));
      if (at < body.length) response.write(piece);
      else {
        clearInterval(timer);
        isOver.abort();
        if (goesOn) response.write(piece, sendMore);
        else response.end(piece);
      }
    }, 30);
    const sendMore = (error?: Error | null): void => {
      if (error) return;
      if (tooMuchBytes > 64 * MB) return void response.end();
      tooMuchBytes += MB;
      response.write(Buffer.alloc(MB), sendMore);
    };
    response.once('close', () => {
      clearInterval(timer);
      isOver.abort();
    });
    return true;
  };
  try {
    await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify({ 'max-concurrent-downloads': 1 }));
    await callJson(engine.socketPath, 'POST', '/engine/config/reload');
    await pullOk(engine, `${server.host}/slow:latest`);
    assert.equal(most, 1);
    await callJson(engine.socketPath, 'DELETE', `/images/${server.host}/slow:latest`);
    // The line is slow enough for more of them.
    isGenerous = true;
    await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify({ 'max-concurrent-downloads': 2 }));
    await callJson(engine.socketPath, 'POST', '/engine/config/reload');
    await pullOk(engine, `${server.host}/slow:latest`);
    // The connection that brought the beginning may be seen to end a moment after its successors began.
    assert.ok([2, 3].includes(most), String(most));
    // Some is on its way when the client leaves.
    assert.ok(tooMuchBytes > 0 && tooMuchBytes < 48 * MB, String(tooMuchBytes));
  } finally {
    await server.stop();
  }
});
