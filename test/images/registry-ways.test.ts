/** The trust of requests to registries, and the protocols of proxies, over real sockets. */
import assert from 'node:assert/strict';
import { appendFileSync, copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { isEngineError } from '../../src/errors/engine-error.js';
import { DEFAULT_LIMITS, readBody, sendRequest } from '../../src/registry/http.js';
import { useProxies } from '../../src/registry/proxy.js';
import { Authority } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';

const dir = mkdtempSync(join(tmpdir(), 'registry-ways-'));
const cleanup = new Cleanup();
cleanup.add(async () => rmSync(dir, { recursive: true }));
after(() => cleanup.run());

const ours = new Authority(dir, 'ours');
const other = new Authority(dir, 'other');
const bundle = join(dir, 'bundle.pem');
process.env['SSL_CERT_FILE'] = bundle;

const NO_PROXY = { httpProxy: '', httpsProxy: '', noProxy: '' };
beforeEach(() => {
  useProxies(NO_PROXY);
  copyFileSync(other.cert, bundle);
});

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanup.add(async () => void server.close());
  return (server.address() as AddressInfo).port;
}

/** An HTTPS server that says which URL it was asked for. */
async function startSecure(names: string, onConnect?: (target: string) => number): Promise<number> {
  const { cert, key } = ours.issue('server', { usage: 'serverAuth', altNames: names });
  const server = createHttpsServer({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) =>
    response.end(`${request.method} ${request.url}`),
  );
  if (onConnect) {
    server.on('connect', (request, socket) => {
      const target = connect(onConnect(request.url ?? ''), '127.0.0.1', () => socket.write('HTTP/1.1 200 OK\r\n\r\n'));
      target.on('error', () => socket.destroy());
      socket.on('error', () => target.destroy());
      socket.pipe(target).pipe(socket);
    });
  }
  cleanup.add(async () => server.closeAllConnections());
  return listening(server);
}

async function ask(url: string): Promise<string> {
  const request = { method: 'GET', url, tls: { verify: true }, limits: DEFAULT_LIMITS } as const;
  return (await readBody(request, await sendRequest(request), 1000)).toString();
}

const isUnknown = (error: unknown): boolean => isEngineError(error) && error.code === 'REGISTRY_TLS';

test('a certificate that is added to the machine, or withdrawn, counts for the next request', async () => {
  const url = `https://localhost:${await startSecure('DNS:localhost')}/x`;
  await assert.rejects(ask(url), isUnknown);
  appendFileSync(bundle, readFileSync(ours.cert));
  assert.equal(await ask(url), 'GET /x');
  writeFileSync(bundle, readFileSync(other.cert));
  await assert.rejects(ask(url), isUnknown);
});

test("a proxy that is spoken to over TLS is trusted by the machine's certificates", async () => {
  const secure = await startSecure('DNS:secure.test');
  const targets: string[] = [];
  const proxy = await startSecure('DNS:localhost', (target) => {
    targets.push(target);
    return secure;
  });
  // The machine itself is reached directly, but a proxy may be on it.
  useProxies({ ...NO_PROXY, httpProxy: `https://localhost:${proxy}`, httpsProxy: `https://localhost:${proxy}` });
  await assert.rejects(ask('http://plain.test/p'));
  await assert.rejects(ask('https://secure.test/s'));
  assert.deepEqual(targets, []);
  appendFileSync(bundle, readFileSync(ours.cert));
  assert.equal(await ask('http://plain.test/p'), 'GET http://plain.test/p');
  assert.equal(await ask('https://secure.test/s'), 'GET /s');
  assert.deepEqual(targets, ['secure.test:443']);
});

test('a SOCKS proxy is given addresses of both families as addresses, and names as names', async () => {
  const wanted: string[] = [];
  const lengths: Readonly<Record<number, number>> = { 1: 10, 4: 22 };
  const port = await listening(
    createServer((client) => {
      client.on('error', () => undefined);
      client.once('data', () => {
        client.write(Buffer.from([5, 0]));
        client.once('data', (data) => {
          const size = lengths[data[3] ?? 0] ?? 7 + (data[4] ?? 0);
          wanted.push(data.subarray(3, size - 2).toString('hex'));
          client.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
          client.once('data', () => client.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok'));
        });
      });
    }),
  );
  useProxies({ ...NO_PROXY, httpProxy: `socks5://127.0.0.1:${port}` });
  for (const host of ['[2001:db8::1]:5000', '192.0.2.1', 'a.test']) assert.equal(await ask(`http://${host}/`), 'ok');
  assert.deepEqual(wanted, [
    '0420010db8000000000000000000000001',
    '01c0000201',
    `0306${Buffer.from('a.test').toString('hex')}`,
  ]);
});
