import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { Plugin } from './plugin.js';
import { PluginClient } from './plugin-client.js';

/** The answers come at once, but a loaded machine may take its time over them. */
const LIMITS = { callMs: 60_000, retryMs: 300 };
/** The plugin never answers. */
const SILENT = { ...LIMITS, callMs: 300 };

async function serve(
  listener: RequestListener,
  inside: (client: PluginClient, port: number) => Promise<void>,
): Promise<void> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = new PluginClient({ kind: 'http', host: '127.0.0.1', port }, LIMITS);
  await inside(client, port);
  client.close();
  server.closeAllConnections();
  server.close();
}

test('a plugin that is silent, too long, or cut off is told apart', async () => {
  await serve(
    () => undefined,
    async (client) => {
      await assert.rejects(client.call('A.B', undefined, SILENT), (error) => isEngineError(error, 'deadline'));
    },
  );
  await serve(
    (_request, response) => void response.write('{'),
    async (client) => {
      await assert.rejects(
        client.call('A.B', undefined, SILENT),
        (error) => isEngineError(error, 'deadline'),
        'a body that never ends',
      );
    },
  );
  await serve(
    (_request, response) => void response.end(`"${'x'.repeat(2 * 1024 * 1024)}"`),
    async (client) => {
      await assert.rejects(client.call('A.B'), /larger than 1048576 bytes/);
    },
  );
  await serve(
    (request) => void request.socket.destroy(),
    async (client) => {
      await assert.rejects(client.call('A.B'), (error) => isEngineError(error, 'unavailable'));
    },
  );
});

test('a connection that the plugin closed meanwhile is not a failure', async () => {
  let count = 0;
  const listener: RequestListener = (request, response) => {
    count++;
    response.end('{}');
    // The plugin closes the connection while the client still keeps it.
    response.once('finish', () => setTimeout(() => request.socket.resetAndDestroy(), 0));
  };
  await serve(listener, async (client) => {
    for (let i = 0; i < 20; i++) assert.deepEqual(await client.call('A.B', {}), {});
    assert.equal(count, 20);
  });
});

test('a plugin of another kind is refused, and greeted again when it has changed', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'plugin-'));
  let manifest: unknown = { Implements: ['VolumeDriver'] };
  await serve(
    (_request, response) => void response.end(JSON.stringify(manifest)),
    async (_client, port) => {
      const spec = join(dir, 'p.spec');
      await writeFile(spec, `tcp://127.0.0.1:${port}`);
      const plugin = new Plugin(spec, 'authz', { limits: LIMITS });
      await assert.rejects(plugin.activate(), /does not implement authz, only VolumeDriver/);
      manifest = { Nothing: true };
      await assert.rejects(plugin.activate(), /no list "Implements"/);
      manifest = { implements: ['authz'] };
      await plugin.activate();
      plugin.close();
    },
  );
  await rm(dir, { recursive: true });
});

test('a plugin over TLS is verified by its CA file', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'plugin-tls-'));
  const [keyFile, certFile] = [join(dir, 'key.pem'), join(dir, 'cert.pem')];
  execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-keyout',
      keyFile,
      '-out',
      certFile,
      '-subj',
      '/CN=plugin',
      '-addext',
      'subjectAltName=IP:127.0.0.1',
    ],
    { stdio: 'ignore' },
  );
  const server = createTlsServer(
    { key: await readFile(keyFile), cert: await readFile(certFile) },
    (_request, response) => void response.end('{"ok":true}'),
  ).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const clientWith = (tls: { caFile: string; insecureSkipVerify: boolean }): PluginClient =>
    new PluginClient({ kind: 'https', host: '127.0.0.1', port, tls: { certFile: '', keyFile: '', ...tls } }, LIMITS);
  const cases: [caFile: string, insecureSkipVerify: boolean, works: boolean][] = [
    [certFile, false, true],
    ['', true, true],
    ['', false, false],
  ];
  for (const [caFile, insecureSkipVerify, works] of cases) {
    const client = clientWith({ caFile, insecureSkipVerify });
    if (works) assert.deepEqual(await client.call('A.B'), { ok: true });
    else await assert.rejects(client.call('A.B'), (error) => isEngineError(error, 'unavailable'));
    client.close();
  }
  server.closeAllConnections();
  server.close();
  await rm(dir, { recursive: true });
});
