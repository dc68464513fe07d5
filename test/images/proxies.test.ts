/** Registry traffic through proxies: the daemon reaches hosts that only the proxy knows. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import { connect, type AddressInfo, type Server as NetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startFaultyServer, type FaultyServer } from '../support/faulty-registry.js';
import { buildImage, generatedLayer } from '../support/image-builder.js';
import { pull } from '../support/pulls.js';

const PLAIN = 'plain.registry.test:5000';
const SECURE = 'secure.registry.test:5001';
const LOGIN = `Basic ${Buffer.from('user:s3cret').toString('base64')}`;

const cleanup = new Cleanup();
let engine: Engine;
let server: FaultyServer;
/** The requests that the proxy has got. */
let asked: string[] = [];

before(async () => {
  server = await startFaultyServer();
  cleanup.add(() => server.stop());
  const terminator = await startTerminator(server);
  const proxy = await startProxy(server, terminator);
  const url = `http://user:s3cret@${proxy}`;
  engine = await Engine.start(
    engined({
      args: [
        '--insecure-registry',
        PLAIN,
        '--insecure-registry',
        SECURE,
        '--insecure-registry',
        'direct.registry.test:5000',
        '--http-proxy',
        url,
        '--no-proxy',
        'direct.registry.test',
      ],
      env: { HTTPS_PROXY: url, HTTP_PROXY: 'http://127.0.0.1:9' },
    }),
  );
  cleanup.add(() => engine.close());
});
after(() => cleanup.run());
beforeEach(() => (asked = []));

async function listening(listener: NetServer): Promise<number> {
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  cleanup.add(async () => void listener.close());
  return (listener.address() as AddressInfo).port;
}

/** Speaks TLS in front of the registry, with a certificate that nobody knows. */
async function startTerminator(target: FaultyServer): Promise<number> {
  const dir = mkdtempSync(join(tmpdir(), 'engined-proxies-'));
  const [key, cert] = [join(dir, 'key'), join(dir, 'cert')];
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
      '-subj',
      '/CN=registry',
      '-days',
      '1',
      '-keyout',
      key,
      '-out',
      cert,
    ],
    { stdio: 'ignore' },
  );
  const terminator = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (secure) => {
    const plain = connect(Number(target.host.split(':')[1]), '127.0.0.1');
    secure.on('error', () => plain.destroy());
    plain.on('error', () => secure.destroy());
    secure.pipe(plain).pipe(secure);
  });
  rmSync(dir, { recursive: true });
  return listening(terminator);
}

/** Takes the two hosts of this test to where they are, and only those who log in. */
async function startProxy(plain: FaultyServer, securePort: number): Promise<string> {
  const proxy: Server = createServer((incoming, outgoing) => {
    asked.push(`${incoming.method} ${incoming.url}`);
    const url = new URL(incoming.url ?? '');
    if (incoming.headers['proxy-authorization'] !== LOGIN || url.host !== PLAIN)
      return void outgoing.writeHead(407).end();
    incoming.pipe(
      request(
        `${plain.url}${url.pathname}${url.search}`,
        { method: incoming.method ?? 'GET', headers: { ...incoming.headers, host: plain.host } },
        (answer) => {
          outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
          answer.pipe(outgoing);
        },
      ),
    );
    return undefined;
  });
  proxy.on('connect', (incoming, socket) => {
    asked.push(`CONNECT ${incoming.url}`);
    if (incoming.headers['proxy-authorization'] !== LOGIN || incoming.url !== SECURE)
      return void socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    const target = connect(securePort, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(target).pipe(socket);
    });
    target.on('error', () => socket.destroy());
    socket.on('error', () => target.destroy());
    return undefined;
  });
  return `127.0.0.1:${await listening(proxy)}`;
}

function publish(name: string, seed: number): void {
  const image = buildImage({ layers: [generatedLayer({ root: 'd', bytes: 100_000, files: 2, seed })] });
  server.documents.set(`/v2/${name}/manifests/latest`, {
    body: image.manifest,
    type: image.mediaType,
    headers: { 'docker-content-digest': image.digest },
  });
  server.documents.set(`/v2/${name}/manifests/${image.digest}`, { body: image.manifest, type: image.mediaType });
  server.documents.set(`/v2/${name}/blobs/${image.id}`, { body: image.config });
  for (const layer of image.layers) server.documents.set(`/v2/${name}/blobs/${layer.digest}`, { body: layer.blob });
}

test('a registry with TLS is pulled from through a tunnel; the proxy comes from the environment', async () => {
  publish('secure', 1);
  assert.equal((await pull(engine, `${SECURE}/secure:latest`)).error, undefined);
  assert.deepEqual(new Set(asked), new Set([`CONNECT ${SECURE}`]));
});

test('a plain registry is pulled from through the proxy; the flag wins over the environment', async () => {
  publish('plain', 2);
  assert.equal((await pull(engine, `${PLAIN}/plain:latest`)).error, undefined);
  assert.ok(asked.includes(`HEAD http://${PLAIN}/v2/plain/manifests/latest`), asked.join('\n'));
  assert.ok(
    asked.some((line) => line.startsWith(`GET http://${PLAIN}/v2/plain/blobs/`)),
    asked.join('\n'),
  );
});

test('exceptions and the machine itself are reached without it', async () => {
  publish('local', 3);
  assert.equal((await pull(engine, `${server.host}/local:latest`)).error, undefined);
  assert.match((await pull(engine, 'direct.registry.test:5000/x:latest')).error ?? '', /direct\.registry\.test/);
  assert.deepEqual(asked, []);
});

test('the login of the proxy is told to nobody', () => {
  assert.ok(!engine.log.includes('s3cret'));
});
