/** The nine operations of the Engine API that any HTTP client can do by hand, done by hand. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { curl, type CurlReply } from '../support/curl.js';
import type { Engine } from '../support/engine.js';
import { engineOk } from '../support/engine-commands.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { RawConnection } from '../support/http.js';
import { pushImage } from '../support/image-builder.js';
import { startRegistry } from '../support/registry.js';
import { idIn, testedStore } from '../support/tested-store.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
/** `/v1.51`, or what the original under test understands. */
let base: string;

before(async () => {
  ({ engine, registry } = await startEngineWithRegistry(cleanup));
  // The first test pulls it.
  await engineOk(engine, ['rmi', registry.reference]);
  base = engine.name === 'dockerd' ? '/v1.41' : '/v1.51';
});

after(() => cleanup.run());

function api(path: string, ...args: string[]): Promise<CurlReply> {
  return curl(engine, `${base}${path}`, ...args);
}

async function json<T>(status: number, reply: Promise<CurlReply>): Promise<T> {
  const { status: actual, head, body } = await reply;
  assert.equal(actual, status, body);
  assert.ok(head.includes('Content-Type: application/json'), head.join('\n'));
  return JSON.parse(body) as T;
}

async function create(body: object): Promise<string> {
  const { Id } = await json<{ Id: string }>(
    201,
    api('/containers/create', '-X', 'POST', '-H', 'Content-Type: application/json', '-d', JSON.stringify(body)),
  );
  return Id;
}

/** With its padding, as the reference client sends it. */
function urlSafeBase64(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64').replaceAll('+', '-').replaceAll('/', '_');
}

/** Waits for the end. Older originals add a null Error. */
async function exitStatus(id: string): Promise<number> {
  const { StatusCode, ...rest } = await json<{ StatusCode: number; Error?: null }>(
    200,
    api(`/containers/${id}/wait`, '-X', 'POST'),
  );
  assert.ok(engine.name === 'dockerd' || Object.keys(rest).length === 0, JSON.stringify(rest));
  return StatusCode;
}

/** The payloads of a multiplexed stream by stream number. */
function demultiplexed(bytes: Buffer): Record<number, string> {
  const streams: Record<number, string> = {};
  for (let at = 0; at < bytes.length;) {
    const stream = bytes.readUInt8(at);
    assert.deepEqual([...bytes.subarray(at + 1, at + 4)], [0, 0, 0]);
    const length = bytes.readUInt32BE(at + 4);
    streams[stream] = (streams[stream] ?? '') + bytes.toString('utf8', at + 8, at + 8 + length);
    at += 8 + length;
  }
  return streams;
}

interface Progress {
  readonly status: string;
  readonly id?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
}

/** Objects of a progress stream; each ends its line. */
function progress(body: string): Progress[] {
  assert.match(body, /\r\n$/);
  return body
    .slice(0, -2)
    .split('\r\n')
    .map((line) => JSON.parse(line) as Progress);
}

describe('the nine operations', () => {
  test('pull an image', async () => {
    const { status, head, body } = await api(
      `/images/create?fromImage=${registry.host}/test/busybox&tag=1.0`,
      '-X',
      'POST',
    );
    assert.equal(status, 200, body);
    assert.ok(head.includes('Content-Type: application/json'));
    const objects = progress(body);
    assert.deepEqual(objects[0], { status: 'Pulling from test/busybox', id: '1.0' });
    for (const { digest, blob } of registry.image.layers) {
      const id = digest.slice(7, 19);
      const own = objects.filter((object) => object.id === id);
      assert.deepEqual(own[0], { status: 'Pulling fs layer', progressDetail: {}, id });
      assert.deepEqual(own.at(-1), { status: 'Pull complete', progressDetail: {}, id });
      for (const { status, progressDetail } of own)
        if (status === 'Downloading') assert.equal(progressDetail?.total, blob.length);
    }
    assert.deepEqual(
      objects.slice(-2).map((object) => object.status),
      [`Digest: ${registry.image.digest}`, `Status: Downloaded newer image for ${registry.reference}`],
    );
  });

  test('list images', async () => {
    const [item, ...others] = await json<{ Id: string; ParentId: string; RepoTags: string[] }[]>(
      200,
      api('/images/json'),
    );
    assert.equal(others.length, 0);
    assert.equal(item?.Id, idIn(testedStore(), registry.image));
    assert.equal(item?.ParentId, '');
    assert.deepEqual(item?.RepoTags, [registry.reference]);
  });

  test('create, start, wait, logs', async () => {
    const created = await json<{ Id: string; Warnings: string[] }>(
      201,
      api(
        '/containers/create',
        '-X',
        'POST',
        '-H',
        'Content-Type: application/json',
        '-d',
        JSON.stringify({ Image: registry.reference, Cmd: ['echo', 'hello world'] }),
      ),
    );
    assert.match(created.Id, /^[0-9a-f]{64}$/);
    assert.deepEqual(created.Warnings, []);

    const short = created.Id.slice(0, 10);
    const started = await api(`/containers/${short}/start`, '-X', 'POST');
    assert.equal(started.status, 204);
    assert.equal(started.body, '');

    assert.equal(await exitStatus(created.Id), 0);

    const logs = await api(`/containers/${short}/logs?stdout=1`);
    assert.equal(logs.status, 200);
    assert.deepEqual(demultiplexed(Buffer.from(logs.body, 'latin1')), { 1: 'hello world\n' });
  });

  test('list and stop containers', async () => {
    const id = await create({ Image: registry.reference, Cmd: ['sleep', '1000'] });
    await api(`/containers/${id}/start`, '-X', 'POST');
    const running = await json<{ Id: string; Names: string[]; Image: string; State: string }[]>(
      200,
      api('/containers/json'),
    );
    assert.deepEqual(
      running.map(({ Id, Image, State }) => ({ Id, Image, State })),
      [{ Id: id, Image: registry.reference, State: 'running' }],
    );
    assert.match(running[0]?.Names[0] ?? '', /^\/./);

    const stopped = await api(`/containers/${id.slice(0, 12)}/stop?t=0`, '-X', 'POST');
    assert.equal(stopped.status, 204);
    assert.equal(stopped.body, '');
    assert.deepEqual(await json(200, api('/containers/json')), []);
    assert.equal((await api(`/containers/${id}/stop`, '-X', 'POST')).status, 304);
  });

  test('commit a container', async () => {
    const id = await create({ Image: registry.reference, Cmd: ['touch', '/helloworld'] });
    await api(`/containers/${id}/start`, '-X', 'POST');
    await api(`/containers/${id}/wait`, '-X', 'POST');
    const { Id } = await json<{ Id: string }>(
      201,
      api(`/commit?container=${id.slice(0, 8)}&repo=helloworld`, '-X', 'POST'),
    );
    assert.match(Id, /^sha256:[0-9a-f]{64}$/);
    const images = await json<{ Id: string; ParentId: string; RepoTags: string[] }[]>(200, api('/images/json'));
    const made = images.find((image) => image.Id === Id);
    assert.deepEqual(made?.RepoTags, ['helloworld:latest']);
    assert.equal(made?.ParentId, idIn(testedStore(), registry.image));

    const check = await create({ Image: 'helloworld', Cmd: ['ls', '/helloworld'] });
    await api(`/containers/${check}/start`, '-X', 'POST');
    assert.equal(await exitStatus(check), 0);
  });

  test('pull with credentials', async () => {
    const htpasswd = join(engine.dir, 'htpasswd');
    // bcrypt of "open sesame".
    writeFileSync(htpasswd, 'ali:$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n');
    const locked = await startRegistry({ extraConfig: `auth: {htpasswd: {realm: cave, path: ${htpasswd}}}` });
    try {
      const credentials = { username: 'ali', password: 'open sesame' };
      const basic = Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64');
      await pushImage(locked.url, 'cave/gold', 'latest', registry.image, { authorization: `Basic ${basic}` });
      const pull = (auth: object | undefined): Promise<CurlReply> => {
        const header =
          auth === undefined
            ? []
            : ['-H', `X-Registry-Auth: ${urlSafeBase64({ ...auth, serveraddress: locked.host })}`];
        return api(`/images/create?fromImage=${locked.host}/cave/gold:latest`, '-X', 'POST', ...header);
      };
      const anonymous = await pull(undefined);
      assert.notEqual(anonymous.status, 200);
      assert.match(anonymous.body, /"message":".*no basic auth credentials/);
      assert.notEqual((await pull({ ...credentials, password: 'open barley' })).status, 200);
      const { status, body } = await pull(credentials);
      assert.equal(status, 200, body);
      assert.equal(progress(body).at(-1)?.status, `Status: Downloaded newer image for ${locked.host}/cave/gold:latest`);
    } finally {
      await locked.stop();
    }
  });
});

describe('what clients depend on', () => {
  test('ping says which versions and which system', async () => {
    const { status, head, body } = await curl(engine, '/_ping');
    assert.equal(status, 200);
    assert.equal(body, 'OK');
    const names = head.slice(1).map((line) => line.split(':')[0]);
    // The original names a builder only since its later versions.
    const wanted = engine.name === 'dockerd' ? [] : ['Builder-Version', 'Swarm'];
    for (const name of [...wanted, 'Api-Version', 'Cache-Control', 'Docker-Experimental', 'Ostype', 'Pragma', 'Server'])
      assert.ok(names.includes(name), `${name} in ${names.join()}`);
    const bare = await curl(engine, '/_ping', '-I');
    assert.equal(bare.status, 200);
    assert.equal(bare.body, '');
  });

  test('errors are JSON with a message', async () => {
    assert.deepEqual(await json(404, api('/containers/nobody/json')), { message: 'No such container: nobody' });
    assert.deepEqual(await json(404, curl(engine, '/v1.30/no/such/page')), { message: 'page not found' });
    const { message } = await json<{ message: string }>(400, curl(engine, '/v1.99/containers/json'));
    assert.match(message, /^client version 1\.99 is too new\. Maximum supported API version is 1\.\d+$/);
  });

  test('starting twice changes nothing', async () => {
    const id = await create({ Image: registry.reference, Cmd: ['sleep', '1000'] });
    assert.equal((await api(`/containers/${id}/start`, '-X', 'POST')).status, 204);
    assert.equal((await api(`/containers/${id}/start`, '-X', 'POST')).status, 304);
    assert.equal((await api(`/containers/${id}?force=1`, '-X', 'DELETE')).status, 204);
  });

  test('wait answers its headers at once', async () => {
    const id = await create({ Image: registry.reference, Cmd: ['sh', '-c', 'exit 9'] });
    const connection = await RawConnection.open(engine.socketPath);
    connection.write(
      `POST ${base}/containers/${id}/wait?condition=next-exit HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n`,
    );
    const head = await connection.readThrough('\r\n\r\n', 2000);
    assert.match(head, /^HTTP\/1\.1 200 OK\r\n/);
    await api(`/containers/${id}/start`, '-X', 'POST');
    assert.match(await connection.readThrough('}'), /\{"(Error":null,")?StatusCode":9/);
    connection.close();
  });

  test('attach takes the connection over and survives a half-close', async () => {
    const id = await create({
      Image: registry.reference,
      Cmd: ['sh', '-c', 'cat; sleep 0.3; echo done; echo bad >&2'],
      AttachStdin: true,
      OpenStdin: true,
      StdinOnce: true,
    });
    const connection = await RawConnection.open(engine.socketPath);
    connection.write(
      `POST ${base}/containers/${id}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: d\r\n` +
        'Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n',
    );
    const head = await connection.readThrough('\r\n\r\n');
    assert.match(head, /^HTTP\/1\.1 101 UPGRADED\r\n/);
    assert.match(head, /\r\nUpgrade: tcp\r\n/);
    await api(`/containers/${id}/start`, '-X', 'POST');
    connection.write('typed\n');
    connection.halfClose();
    assert.deepEqual(demultiplexed(await connection.readToEnd()), { 1: 'typed\ndone\n', 2: 'bad\n' });
    connection.close();
  });

  test('a terminal container has plain logs', async () => {
    const id = await create({ Image: registry.reference, Cmd: ['echo', 'plain'], Tty: true });
    await api(`/containers/${id}/start`, '-X', 'POST');
    await api(`/containers/${id}/wait`, '-X', 'POST');
    assert.equal((await api(`/containers/${id}/logs?stdout=1`)).body, 'plain\r\n');
  });
});
