/** Ways to registries: SOCKS proxies, mirrors of any registry, and what other hosts never get to see. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { type FaultyServer, startFaultyServer } from '../support/faulty-registry.js';
import { call, callJson } from '../support/http.js';
import { type BuiltImage, buildImage, buildLayer, generatedLayer } from '../support/image-builder.js';
import { pull } from '../support/pulls.js';

const HIDDEN = 'hidden.registry.test:5000';
const cleanup = new Cleanup();
let engine: Engine;
let registry: FaultyServer;
let mirror: FaultyServer;
/** `user:password host:port` of every connection that the proxy was asked for. */
const tunnels: string[] = [];

before(async () => {
  registry = await startFaultyServer();
  cleanup.add(() => registry.stop());
  mirror = await startFaultyServer();
  cleanup.add(() => mirror.stop());
  const port = await startSocks();
  engine = await Engine.start(
    engined({
      args: [
        '--insecure-registry',
        HIDDEN,
        '--http-proxy',
        `socks5://me:s3cret@127.0.0.1:${port}`,
        '--https-proxy',
        `socks5h://127.0.0.1:${port}`,
      ],
    }),
  );
  cleanup.add(() => engine.close());
});
after(() => cleanup.run());

/** A SOCKS5 server that takes every connection for port 5000 to the registry, and refuses all others. */
async function startSocks(): Promise<number> {
  const server = createServer((client) => {
    let state: 'hello' | 'login' | 'request' | 'open' = 'hello';
    let user = '-';
    client.on('error', () => undefined);
    client.on('data', (data) => {
      if (state === 'hello') {
        const wantsLogin = data.subarray(2).includes(2);
        state = wantsLogin ? 'login' : 'request';
        client.write(Buffer.from([5, wantsLogin ? 2 : 0]));
      } else if (state === 'login') {
        const length = data[1] ?? 0;
        user = `${data.subarray(2, 2 + length).toString()}:${data.subarray(3 + length).toString()}`;
        state = 'request';
        client.write(Buffer.from([1, 0]));
      } else if (state === 'request') {
        const length = data[4] ?? 0;
        const port = data.readUInt16BE(5 + length);
        tunnels.push(`${user} ${data.subarray(5, 5 + length).toString()}:${port}`);
        if (port !== 5000 || user === '-') return void client.end(Buffer.from([5, 5, 0, 1, 0, 0, 0, 0, 0, 0]));
        state = 'open';
        const target = connect(Number(registry.host.split(':')[1]), '127.0.0.1');
        target.on('error', () => client.destroy());
        client.write(Buffer.from([5, 0, 0, 1, 127, 0, 0, 1, 0, 0]));
        client.removeAllListeners('data');
        client.pipe(target).pipe(client);
      }
      return undefined;
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanup.add(async () => void server.close());
  return (server.address() as AddressInfo).port;
}

function publish(image: BuiltImage, name: string, on: FaultyServer): void {
  const manifest = { body: image.manifest, type: image.mediaType, headers: { 'docker-content-digest': image.digest } };
  for (const reference of ['latest', image.digest]) on.documents.set(`/v2/${name}/manifests/${reference}`, manifest);
  on.documents.set(`/v2/${name}/blobs/${image.id}`, { body: image.config });
  for (const layer of image.layers) on.documents.set(`/v2/${name}/blobs/${layer.digest}`, { body: layer.blob });
}

async function reload(content: unknown): Promise<void> {
  await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify(content));
  await callJson(engine.socketPath, 'POST', '/engine/config/reload');
}

test('a registry behind a SOCKS5 proxy, which alone knows its name', async () => {
  publish(buildImage({ layers: [buildLayer([{ path: 'f', content: 'through' }])] }), 'app', registry);
  const { error, messages } = await pull(engine, `${HIDDEN}/app:latest`);
  assert.equal(error, undefined);
  assert.match(messages.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.ok(tunnels.includes(`me:s3cret ${HIDDEN}`), tunnels.join());
  const refused = await pull(engine, 'elsewhere.registry.test:6000/app:latest');
  assert.match(
    refused.error ?? '',
    /proxy 127\.0\.0\.1:\d+: connection to elsewhere\.registry\.test:6000 refused: connection refused/,
  );
});

test('mirrors of a registry that is not the default one are asked first, and left when they fail', async () => {
  const image = buildImage({ layers: [generatedLayer({ root: 'm', bytes: 3 << 20, files: 5, seed: 31 })] });
  const other = buildImage({ layers: [buildLayer([{ path: 'f', content: 'only there' }])] });
  publish(image, 'team/app', mirror);
  publish(image, 'team/app', registry);
  publish(other, 'team/other', registry);
  await reload({ 'registry-mirrors-for': { [registry.host]: [mirror.url] } });
  const auth = {
    'X-Registry-Auth': Buffer.from(JSON.stringify({ username: 'me', password: 'secret' })).toString('base64'),
  };
  const pulled = async (name: string): Promise<void> => {
    const reply = await call(
      engine.socketPath,
      'POST',
      `/images/create?fromImage=${registry.host}/${name}&tag=latest`,
      { headers: auth },
    );
    assert.match(reply.text, /Downloaded newer image/);
  };
  const before = registry.requests.length;
  await pulled('team/app');
  assert.equal(registry.requests.length, before, 'the mirror had everything');
  await pulled('team/other');
  assert.ok(mirror.requests.some((line) => line.includes('team/other')));
  assert.ok(
    mirror.headers.every(({ authorization }) => authorization === undefined),
    'credentials belong to the registry',
  );

  // A mirror that fails in the middle is left, too.
  await callJson(engine.socketPath, 'DELETE', `/images/${registry.host}/team/app:latest`);
  mirror.intercept = (request, response) => {
    if (!request.url?.includes(`/blobs/${image.layers[0]?.digest}`)) return false;
    response.writeHead(404).end();
    return true;
  };
  await pulled('team/app');
  mirror.intercept = undefined;
  await reload({});
  const asked = mirror.requests.length;
  await callJson(engine.socketPath, 'DELETE', `/images/${registry.host}/team/app:latest`);
  await pulled('team/app');
  assert.equal(mirror.requests.length, asked, 'the reload took it away');
});

test('what cannot be a mirror is refused by a reload', async () => {
  for (const [value, message] of [
    [{ 'docker.io': ['https://m'] }, /registry-mirrors/],
    [{ 'a b': ['https://m'] }, /not the host/],
    [{ 'ghcr.io': ['ftp://m'] }, /unsupported scheme/],
    [{ 'ghcr.io': 'https://m' }, /array/],
    [['https://m'], /object/],
  ] as const) {
    await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify({ 'registry-mirrors-for': value }));
    const reply = await call(engine.socketPath, 'POST', '/engine/config/reload');
    assert.match(reply.text, message);
    assert.match(reply.text, /registry-mirrors-for/);
  }
  await reload({});
});

test('a blob that lies on another host is fetched from there without credentials', async () => {
  const image = buildImage({ layers: [buildLayer([{ path: 'f', content: 'redirected' }])] });
  publish(image, 'moved', registry);
  const blob = `/v2/moved/blobs/${image.layers[0]?.digest}`;
  mirror.documents.set('/store/blob', { body: image.layers[0]?.blob ?? Buffer.alloc(0) });
  const basic = `Basic ${Buffer.from('me:secret').toString('base64')}`;
  registry.intercept = (request, response) => {
    if (request.headers.authorization !== basic)
      response.writeHead(401, { 'www-authenticate': 'Basic realm="r"' }).end();
    else if (request.url === blob) response.writeHead(307, { location: `${mirror.url}/store/blob?signature=x` }).end();
    else return false;
    return true;
  };
  mirror.documents.set('/store/blob?signature=x', { body: image.layers[0]?.blob ?? Buffer.alloc(0) });
  const auth = {
    'X-Registry-Auth': Buffer.from(JSON.stringify({ username: 'me', password: 'secret' })).toString('base64'),
  };
  const reply = await call(engine.socketPath, 'POST', `/images/create?fromImage=${registry.host}/moved&tag=latest`, {
    headers: auth,
  });
  registry.intercept = undefined;
  assert.match(reply.text, /Downloaded newer image/);
  const index = mirror.requests.findIndex((line) => line.includes('/store/blob'));
  assert.ok(index >= 0 && mirror.headers[index]?.authorization === undefined);
});

test('credentials that are marked for another registry are not shown to this one', async (t) => {
  const wary = await startFaultyServer();
  t.after(() => wary.stop());
  publish(buildImage({ layers: [buildLayer([{ path: 'f', content: 'marked' }])] }), 'marked', wary);
  const shown: (string | undefined)[] = [];
  wary.intercept = (request, response) => {
    shown.push(request.headers.authorization);
    if (request.headers.authorization === undefined)
      response.writeHead(401, { 'www-authenticate': 'Basic realm="r"' }).end();
    return request.headers.authorization === undefined;
  };
  const pullWith = async (serveraddress: string): Promise<string> => {
    const auth = {
      'X-Registry-Auth': Buffer.from(JSON.stringify({ username: 'me', password: 'secret', serveraddress })).toString(
        'base64',
      ),
    };
    return (
      await call(engine.socketPath, 'POST', `/images/create?fromImage=${wary.host}/marked&tag=latest`, {
        headers: auth,
      })
    ).text;
  };
  await pullWith('https://index.docker.io/v1/');
  assert.ok(shown.length > 0);
  assert.deepEqual(
    shown.filter((authorization) => authorization !== undefined),
    [],
  );
  assert.match(await pullWith(`http://${wary.host}/v2/`), /Downloaded newer image/);
});

test('a registry that has layers uploaded to another host: that one gets no credentials', async () => {
  const name = `${registry.host}/uploaded`;
  publish(buildImage({ layers: [buildLayer([{ path: 'f', content: 'to be pushed' }])] }), 'uploaded', registry);
  assert.equal((await pull(engine, `${name}:latest`)).error, undefined);
  await callJson(engine.socketPath, 'POST', `/images/${name}:latest/tag?repo=${registry.host}/elsewhere&tag=1`);
  const basic = `Basic ${Buffer.from('me:secret').toString('base64')}`;
  const uploads: (string | undefined)[] = [];
  registry.intercept = (request, response) => {
    if (request.headers.authorization !== basic)
      response.writeHead(401, { 'www-authenticate': 'Basic realm="r"' }).end();
    else if (request.method === 'HEAD') response.writeHead(404).end();
    else if (request.method === 'POST') response.writeHead(202, { location: `${mirror.url}/upload/1` }).end();
    else if (request.method === 'PUT') request.resume().once('end', () => response.writeHead(201).end());
    else return false;
    return true;
  };
  mirror.intercept = (request, response) => {
    if (!request.url?.startsWith('/upload/')) return false;
    uploads.push(request.headers.authorization);
    request
      .resume()
      .once('end', () =>
        response.writeHead(request.method === 'PUT' ? 201 : 202, { location: `${mirror.url}/upload/2` }).end(),
      );
    return true;
  };
  const auth = {
    'X-Registry-Auth': Buffer.from(JSON.stringify({ username: 'me', password: 'secret' })).toString('base64'),
  };
  const reply = await call(engine.socketPath, 'POST', `/images/${registry.host}/elsewhere/push?tag=1`, {
    headers: auth,
  });
  registry.intercept = mirror.intercept = undefined;
  assert.match(reply.text, /"Digest":"sha256:/);
  // Layer and configuration.
  assert.ok(uploads.length >= 2 && uploads.every((authorization) => authorization === undefined), uploads.join());
});

test('a pull under way goes on as it began when the configuration changes', async () => {
  const image = buildImage({ layers: [generatedLayer({ root: 'r', bytes: 6 << 20, files: 5, seed: 77 })] });
  publish(image, 'steady', registry);
  const layer = image.layers[0] ?? assert.fail('no layer');
  const half = layer.blob.length >> 1;
  let finish = (): void => undefined;
  const reached = new Promise<void>((resolve) => {
    registry.intercept = (request, response, nth) => {
      if (!request.url?.endsWith(`/blobs/${layer.digest}`) || nth > 1) return false;
      // Half of it, and in the end a broken connection: the rest is asked for under the new configuration.
      response
        .writeHead(200, { 'content-length': layer.blob.length })
        .write(layer.blob.subarray(0, half), () => resolve());
      finish = () => void response.destroy();
      return true;
    };
  });
  const asked = mirror.requests.length;
  const pulling = pull(engine, `${registry.host}/steady:latest`);
  await reached;
  await reload({
    'registry-mirrors-for': { [registry.host]: [mirror.url] },
    'max-download-attempts': 1,
    'max-concurrent-downloads': 1,
  });
  finish();
  const { error, messages } = await pulling;
  registry.intercept = undefined;
  await reload({});
  assert.equal(error, undefined);
  assert.match(messages.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.equal(mirror.requests.length, asked, 'the mirror is for what begins afterwards');
  // Bytes that were on their way when the connection broke are sent again.
  const served = registry.served.get(`/v2/steady/blobs/${layer.digest}`) ?? 0;
  assert.ok(served >= layer.blob.length - half && served < layer.blob.length, `${served} of ${layer.blob.length}`);
});
