/** Registries with certificates of their own: trusted by certs.d, refused with advice, insecure by declaration. */
import assert from 'node:assert/strict';
import { constants } from 'node:crypto';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as createPlainServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { after, before, test } from 'node:test';
import { isEngineError } from '../../src/errors/engine-error.js';
import { Authority } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call } from '../support/http.js';
import { buildImage, buildLayer } from '../support/image-builder.js';
import { linesOf, startPullHarness, type PullHarness } from '../support/pull-harness.js';

/** Loopback is always insecure: what a secure registry does can only be seen at another address. */
const address = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === 'IPv4' && !one.internal)?.address;
const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
const skip =
  address === undefined ? 'this machine has no address but loopback' : hasOpenssl ? false : 'openssl is not installed';

const image = buildImage({ layers: [buildLayer([{ path: 'a', content: 'x' }])] });
const documents = new Map<string, { readonly body: Buffer; readonly type: string }>([
  ['/v2/', { body: Buffer.from('{}'), type: 'application/json' }],
  ['/v2/app/manifests/latest', { body: image.manifest, type: image.mediaType }],
  [`/v2/app/manifests/${image.digest}`, { body: image.manifest, type: image.mediaType }],
  [`/v2/app/blobs/${image.id}`, { body: image.config, type: 'application/octet-stream' }],
  ...image.layers.map(
    ({ digest, blob }) => [`/v2/app/blobs/${digest}`, { body: blob, type: 'application/octet-stream' }] as const,
  ),
]);

let dir: string;
let server: Server;
let host: string;
let asksForCertificate = false;

function serve(request: IncomingMessage, response: ServerResponse): void {
  const document = documents.get(request.url ?? '');
  const isAllowed = !asksForCertificate || (request.socket as TLSSocket).authorized;
  if (!document || !isAllowed) response.writeHead(isAllowed ? 404 : 403).end();
  else
    response
      .writeHead(200, { 'content-type': document.type, 'content-length': document.body.length })
      .end(request.method === 'HEAD' ? undefined : document.body);
}

/** A key of RSA takes a while to be found. */
const EC_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

function openssl(...args: string[]): void {
  execFileSync('openssl', args, { cwd: dir, stdio: 'ignore' });
}

before(async () => {
  if (skip !== false) return;
  dir = await mkdtemp(join(tmpdir(), 'engined-tls-'));
  await writeFile(join(dir, 'extensions'), `subjectAltName=IP:${address}\n`);
  openssl('req', '-x509', ...EC_KEY, '-days', '2', '-subj', '/CN=test-ca', '-keyout', 'ca.key', '-out', 'ca.crt');
  for (const name of ['server', 'client']) {
    openssl('req', ...EC_KEY, '-subj', `/CN=${name}`, '-keyout', `${name}.key`, '-out', `${name}.csr`);
    openssl(
      'x509',
      '-req',
      '-in',
      `${name}.csr`,
      '-CA',
      'ca.crt',
      '-CAkey',
      'ca.key',
      '-CAcreateserial',
      '-days',
      '2',
      '-extfile',
      'extensions',
      '-out',
      `${name}.crt`,
    );
  }
  const read = (name: string): Promise<Buffer> => readFile(join(dir, name));
  server = createServer(
    {
      key: await read('server.key'),
      cert: await read('server.crt'),
      ca: await read('ca.crt'),
      requestCert: true,
      rejectUnauthorized: false,
      // Node takes a client without a certificate for authorized when it goes on with an earlier session.
      secureOptions: constants.SSL_OP_NO_TICKET,
    },
    serve,
  );
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  host = `${address}:${(server.address() as AddressInfo).port}`;
});

after(async () => {
  if (skip !== false) return;
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(dir, { recursive: true, force: true });
});

async function withHarness(
  overrides: Parameters<typeof startPullHarness>[0],
  use: (harness: PullHarness) => Promise<void>,
): Promise<void> {
  const harness = await startPullHarness(overrides);
  try {
    await use(harness);
  } finally {
    await harness.stop();
  }
}

const pulled = async (harness: PullHarness): Promise<void> => {
  assert.match((await linesOf(await harness.start(`${host}/app`))).at(-1)?.status ?? '', /Downloaded newer image/);
};

test('an unknown CA is refused with the advice what to do', { skip }, () =>
  withHarness({}, async (harness) => {
    await assert.rejects(harness.start(`${host}/app`), (error) => {
      assert.ok(isEngineError(error) && error.code === 'REGISTRY_NOT_SECURE');
      assert.match(error.message, /certificate/);
      assert.ok(error.message.includes(`--insecure-registry ${host}`) && error.message.includes(`${host}/ca.crt`));
      return true;
    });
  }),
);

test('a certificate that has expired is refused with other advice, since no CA helps', { skip }, async () => {
  const authority = new Authority(dir, 'late');
  const late = authority.issue('server', { usage: 'serverAuth', isExpired: true, altNames: `IP:${address}` });
  const other = createServer({ key: await readFile(late.key), cert: await readFile(late.cert) }, serve);
  await new Promise<void>((resolve) => other.listen(0, address, resolve));
  try {
    const place = `${address}:${(other.address() as AddressInfo).port}`;
    await withHarness({}, (harness) =>
      assert.rejects(harness.start(`${place}/app`), (error) => {
        assert.ok(isEngineError(error) && error.code === 'REGISTRY_NOT_SECURE');
        assert.match(
          error.message,
          /: certificate has expired\. Renew the certificate of the registry, or set the clock/,
        );
        assert.doesNotMatch(error.message, /ca\.crt|insecure/);
        return true;
      }),
    );
  } finally {
    await new Promise((resolve) => other.close(resolve));
  }
});

test('a CA in certs.d is trusted, on the main thread and in the workers', { skip }, async () => {
  const certsDir = join(dir, 'certs.d');
  await mkdir(join(certsDir, host), { recursive: true });
  await writeFile(join(certsDir, host, 'ca.crt'), await readFile(join(dir, 'ca.crt')));
  const rules = () => ({ insecure: [], mirrors: [], certsDir });
  await withHarness({ rules }, pulled);

  asksForCertificate = true;
  await withHarness({ rules }, (harness) =>
    assert.rejects(harness.start(`${host}/app`), (error) => isEngineError(error, 'not-found')),
  );
  for (const [from, to] of [
    ['client.crt', 'client.cert'],
    ['client.key', 'client.key'],
  ] as const)
    await writeFile(join(certsDir, host, to), await readFile(join(dir, from)));
  await withHarness({ rules }, pulled);
  await rm(join(certsDir, host, 'client.key'));
  await withHarness({ rules }, (harness) =>
    assert.rejects(harness.start(`${host}/app`), /missing key client.key for client certificate client.cert/),
  );
  asksForCertificate = false;
});

test(
  'pull, push, search and login say what to do about a registry that is not secure, by an unknown CA or none',
  { skip },
  async () => {
    const plain = createPlainServer((request, response) => serve(request, response));
    await new Promise<void>((resolve) => plain.listen(0, address, resolve));
    const cleanup = new Cleanup();
    try {
      const { engine, image: known } = await startEngineWithRegistry(cleanup, engined());
      for (const registry of [host, `${address}:${(plain.address() as AddressInfo).port}`]) {
        await engineOk(engine, ['tag', known, `${registry}/app`]);
        const login = { username: 'u', password: 'p', serveraddress: registry };
        const replies = {
          pull: await call(engine.socketPath, 'POST', `/images/create?fromImage=${registry}/app&tag=latest`),
          push: await call(engine.socketPath, 'POST', `/images/${registry}/app/push?tag=latest`, {
            headers: { 'X-Registry-Auth': 'e30=' },
          }),
          search: await call(engine.socketPath, 'GET', `/images/search?term=${registry}/app`),
          login: await call(engine.socketPath, 'POST', '/auth', { json: login }),
        };
        for (const [what, { status, text }] of Object.entries(replies)) {
          assert.ok(text.includes(`--insecure-registry ${registry}`), `${what} of ${registry}: ${status} ${text}`);
          assert.ok(text.includes(`certs.d/${registry}/ca.crt`), `${what} of ${registry}: ${status} ${text}`);
        }
      }
    } finally {
      await cleanup.run();
      plain.closeAllConnections();
      plain.close();
    }
  },
);

test('a registry that was declared insecure needs no known CA', { skip }, async () => {
  for (const insecure of [[host], [`${address}/32`]])
    await withHarness({ rules: () => ({ insecure, mirrors: [], certsDir: '/nonexistent' }) }, pulled);
});
