/** Malformed requests and lying registries get a clear refusal from the daemon, and nothing else happens. */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, afterEach, before, describe, test } from 'node:test';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, RawConnection, type CallOptions } from '../support/http.js';
import { buildImage, buildLayer, generatedLayer, type BuiltImage } from '../support/image-builder.js';
import { startLyingRegistry, type Lie } from '../support/lying-registry.js';
import { pull, pullOk } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;

before(async () => {
  // The pauses between attempts grow by seconds: one attempt is enough to see a failure.
  ({ engine, registry } = await startEngineWithRegistry(cleanup, engined({ args: ['--max-download-attempts', '1'] })));
});

after(() => cleanup.run());

afterEach(async () => {
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).text, 'OK', 'the daemon goes on');
  const containers = await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/containers/json?all=1');
  // One failure must not make the next tests fail.
  for (const { Id } of containers) await callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`);
  assert.equal(containers.length, 0, 'no half-made container');
  const images = await callJson<{ Id: string; RepoTags: string[] }[]>(engine.socketPath, 'GET', '/images/json?all=1');
  for (const { Id } of images)
    if (Id !== registry.image.id) await callJson(engine.socketPath, 'DELETE', `/images/${Id}?force=1`);
  assert.deepEqual(
    images.flatMap(({ RepoTags }) => RepoTags),
    [registry.reference],
    'no half-made image',
  );
});

async function refused(
  status: number,
  message: RegExp | string,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<void> {
  const reply = await call(engine.socketPath, method, path, options);
  const what = `${method} ${path} gave ${reply.status} ${reply.text}`;
  assert.equal(reply.status, status, what);
  assert.equal(reply.headers['content-type'], 'application/json', what);
  const body = JSON.parse(reply.text) as { message: string };
  assert.deepEqual(Object.keys(body), ['message']);
  if (typeof message === 'string') assert.equal(body.message, message);
  else assert.match(body.message, message);
}

function refusedCreate(status: number, message: RegExp | string, json: unknown, query = ''): Promise<void> {
  return refused(status, message, 'POST', `/containers/create${query}`, { json });
}

describe('requests', () => {
  test('bodies that are not the JSON that is asked for', async () => {
    const type = { 'Content-Type': 'application/json' };
    const post = (
      status: number,
      message: RegExp | string,
      body: string,
      headers: Record<string, string> = type,
    ): Promise<void> => refused(status, message, 'POST', '/containers/create', { body, headers });
    await post(400, /^invalid JSON: /, '{"Image":');
    await post(400, /^invalid JSON: /, 'hello');
    await post(400, 'unexpected content after JSON', `{"Image":"${registry.reference}"} {}`);
    await post(400, /Content-Type header \(text\/plain\): must be 'application\/json'/, '{}', {
      'Content-Type': 'text/plain',
    });
    await post(400, /^config cannot be empty in order to create a container$/, 'null');
    for (const json of [
      { Image: 5 },
      { Image: registry.reference, Cmd: { a: 1 } },
      { Image: registry.reference, Env: 'A=b' },
      { Image: registry.reference, HostConfig: { Memory: 'much' } },
      { Image: registry.reference, HostConfig: [] },
      [],
    ]) {
      await refusedCreate(400, /./, json);
    }
  });

  test('images that are not there or have no name', async () => {
    await refusedCreate(404, 'No such image: nowhere/nothing:latest', { Image: 'nowhere/nothing' });
    await refusedCreate(400, /invalid reference format/, { Image: 'lower/UPPER' });
    await refused(404, 'No such image: nowhere:latest', 'GET', '/images/nowhere/json');
    await refused(404, 'No such image: nowhere:latest', 'DELETE', '/images/nowhere');
    await refused(400, /invalid reference format/, 'POST', '/images/create?fromImage=UPPER');
    await refused(404, 'No such image: nowhere:latest', 'POST', '/images/nowhere/tag?repo=a');
  });

  test('containers that are not there', async () => {
    const routes = [
      'GET json',
      'GET logs?stdout=1',
      'POST start',
      'POST stop',
      'POST kill',
      'POST wait',
      'POST resize?h=1&w=1',
    ];
    for (const route of routes) {
      const [method = '', path = ''] = route.split(' ');
      await refused(404, /No such container: nobody$/, method, `/containers/nobody/${path}`);
    }
    // A client that wants a stream is told on it, as by the existing engine.
    const attach = await call(engine.socketPath, 'POST', '/containers/nobody/attach?stdout=1&stream=1');
    assert.deepEqual(
      [attach.status, attach.headers['content-type'], attach.text.trim()],
      [404, 'application/vnd.docker.raw-stream', 'No such container: nobody'],
    );
    await refused(404, 'No such container: nobody', 'DELETE', '/containers/nobody');
    await refused(404, 'No such container: nobody', 'POST', '/commit?container=nobody&repo=a');
  });

  test('names that no container may have', async () => {
    for (const name of ['a', '-dash', 'sl/ash', 'sp ace', 'ümlaut', '..']) {
      await refusedCreate(
        400,
        `Invalid container name (${name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed`,
        { Image: registry.reference },
        `?name=${encodeURIComponent(name)}`,
      );
    }
  });

  test('a prefix that fits several containers', async () => {
    // Seventeen IDs and sixteen digits: two of them begin alike.
    const ids: string[] = [];
    for (let index = 0; index < 17; index++) {
      ids.push(
        (
          await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
            json: { Image: registry.reference },
          })
        ).Id,
      );
    }
    const firsts = ids.map((id) => id.charAt(0));
    const prefix = firsts.find((digit, index) => firsts.indexOf(digit) !== index) ?? '';
    await refused(400, `multiple IDs found with provided prefix: ${prefix}`, 'GET', `/containers/${prefix}/json`);
    for (const id of ids) await callJson(engine.socketPath, 'DELETE', `/containers/${id}`);
  });

  test('parameters that make no sense', async () => {
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
      json: { Image: registry.reference },
    });
    await refused(400, 'Bad parameters: you must choose at least one stream', 'GET', `/containers/${Id}/logs`);
    await refused(400, 'invalid condition: "maybe"', 'POST', `/containers/${Id}/wait?condition=maybe`);
    await refused(400, /nvalid signal: NOSUCH/, 'POST', `/containers/${Id}/kill?signal=NOSUCH`);
    await refused(409, /is not running/, 'POST', `/containers/${Id}/kill`);
    await refused(400, /invalid filter/, 'GET', '/containers/json?filters=%7B%22zz%22%3A%5B%221%22%5D%7D');
    await refused(400, /invalid/, 'GET', '/containers/json?filters=%7Bnot');
    // There is no plugin that it could be asked of.
    await refused(400, /invalid filter 'enabled=\[x\]'/, 'GET', '/plugins?filters={"enabled":["x"]}');
    await refused(400, /after `until` time/, 'GET', '/events?since=20&until=10');
    await refused(400, /height/, 'POST', `/containers/${Id}/resize?h=tall&w=1`);
    await callJson(engine.socketPath, 'DELETE', `/containers/${Id}`);
  });

  test('bytes that are not HTTP', async () => {
    for (const bytes of [
      '\u0016\u0003\u0001\u0002\u0000',
      'GET\r\n\r\n',
      'GET /_ping HTTP/1.1\r\nContent-Length: -5\r\n\r\n',
      `GET /_ping HTTP/1.1\r\nHost: d\r\nX: ${'y'.repeat(2_000_000)}\r\n\r\n`,
    ]) {
      const connection = await RawConnection.open(engine.socketPath);
      connection.write(bytes);
      connection.halfClose();
      const answer = (await connection.readToEnd().catch(() => Buffer.alloc(0))).toString();
      assert.doesNotMatch(answer, /^HTTP\/1\.1 2/);
      connection.close();
    }
    for (const path of [
      '/containers/%00/json',
      '/containers/%ff%fe/json',
      '/containers/..%2f..%2fetc/json',
      '/containers/%zz/json',
    ]) {
      const { status } = await call(engine.socketPath, 'GET', path);
      assert.ok(status >= 300 && status < 500, `${path} gave ${status}`);
    }
  });
});

describe('registries that break or lie', () => {
  const layer = buildLayer([{ path: 'only', content: 'in this image\n' }]);
  const big = generatedLayer({ root: 'big', bytes: 2_000_000, files: 10, seed: 5 });
  const image = buildImage({ layers: [layer, big] });

  /** A registry that wants to be left alone for a while gets its will, one that wants it for hours does not. */
  const TOO_LONG = { 'Retry-After': '36000' };

  /** Pulls through a registry that lies; gives how the pull failed. */
  async function failure(
    lie: Lie,
    truth: BuiltImage = image,
    suffix = ':1',
  ): Promise<{ status: number; error: string }> {
    const lying = await startLyingRegistry(truth, lie);
    try {
      const { status, error, messages } = await pull(engine, `${lying.host}/some/thing${suffix}`);
      assert.ok(error !== undefined, `the pull succeeded: ${JSON.stringify(messages)}`);
      return { status, error };
    } finally {
      await lying.stop();
    }
  }

  function answer(part: RegExp, status: number, headers: Record<string, string> = {}): Lie {
    return ({ path }, response) =>
      part.test(path) &&
      (response
        .writeHead(status, { 'Content-Type': 'application/json', ...headers })
        .end('{"errors":[{"code":"X","message":"said the registry"}]}'),
      true);
  }

  const isBlob = (digest: string, path: string): boolean => path.endsWith(`/blobs/${digest}`);

  test('statuses instead of the manifest are refusals, not streams', async () => {
    assert.equal((await failure(answer(/manifests/, 404))).status, 404);
    for (const status of [401, 403, 429, 500, 503]) {
      const { status: given, error } = await failure(answer(/manifests/, status, TOO_LONG));
      assert.ok(given >= 400, `${status} became ${given}`);
      assert.ok(error.length > 0);
    }
  });

  test('statuses instead of a layer end the stream with an error', async () => {
    for (const status of [401, 404, 429, 500]) {
      const { status: given } = await failure(answer(new RegExp(big.digest), status, TOO_LONG));
      assert.equal(given, 200);
    }
  });

  test('a manifest that is not the one asked for by digest', async () => {
    const other = buildImage({ layers: [layer] });
    const { error } = await failure(() => false, image, `@${other.digest}`);
    assert.match(error, /digest|verif/i);
  });

  test('a layer whose bytes are others', async () => {
    const { error } = await failure(({ path }, response) => {
      if (!isBlob(big.digest, path)) return false;
      const blob = Buffer.from(big.blob);
      blob.writeUInt8(blob.readUInt8(blob.length - 10) ^ 255, blob.length - 10);
      response.writeHead(200, { 'Content-Length': blob.length }).end(blob);
      return true;
    });
    assert.match(error, /verif|digest/i);
  });

  test('a layer that stops half-way', async () => {
    await failure(({ path }, response) => {
      if (!isBlob(big.digest, path)) return false;
      response.writeHead(200, { 'Content-Length': big.blob.length });
      response.write(big.blob.subarray(0, 1000), () => response.destroy());
      return true;
    });
  });

  test('a layer that is longer than declared', async () => {
    // A layer of its own: one that came whole in an earlier pull may still be at hand.
    const long = buildLayer([{ path: 'long', content: 'and longer' }]);
    await failure(
      ({ path }, response) => {
        if (!isBlob(long.digest, path)) return false;
        response.writeHead(200).end(Buffer.concat([long.blob, Buffer.alloc(5_000_000)]));
        return true;
      },
      buildImage({ layers: [long] }),
    );
  });

  test('a configuration that is not the one of the manifest, and one with other layers', async () => {
    const other = buildImage({ layers: [layer] });
    const { error } = await failure(
      ({ path }, response) => isBlob(image.id, path) && (response.writeHead(200).end(other.config), true),
    );
    assert.match(error, /verif|digest/i);
    const crossed = buildImage({ layers: [big] });
    const manifest = JSON.parse(image.manifest.toString()) as { config: object };
    manifest.config = {
      mediaType: 'application/vnd.docker.container.image.v1+json',
      size: crossed.config.length,
      digest: crossed.id,
    };
    await failure(({ path }, response) => {
      if (isBlob(crossed.id, path)) response.writeHead(200).end(crossed.config);
      else if (/manifests/.test(path))
        response.writeHead(200, { 'Content-Type': image.mediaType }).end(JSON.stringify(manifest));
      else return false;
      return true;
    });
  });

  test('configurations with members of another type', async () => {
    for (const [name, value] of Object.entries({ Env: -1, Cmd: {}, WorkingDir: 5, StopSignal: 9, Healthcheck: 'x' })) {
      const { error } = await failure(() => false, buildImage({ layers: [layer], config: { [name]: value } }));
      assert.match(error, new RegExp(`invalid image configuration: config.${name} is of another type`));
    }
  });

  test('manifests that are no manifests', async () => {
    for (const text of [
      '',
      'null',
      '[]',
      '{"schemaVersion":2}',
      '{"schemaVersion":1}',
      '{"schemaVersion":2,"layers":5,"config":{}}',
      '<html>',
    ]) {
      await failure(
        ({ path }, response) =>
          /manifests/.test(path) && (response.writeHead(200, { 'Content-Type': image.mediaType }).end(text), true),
      );
    }
  });

  test('a registry that hangs holds nobody else up, and leaving ends the pull', async () => {
    const hanging: ServerResponse[] = [];
    const lying = await startLyingRegistry(
      image,
      ({ path }, response) => /manifests/.test(path) && hanging.push(response) > 0,
    );
    try {
      const client = await RawConnection.open(engine.socketPath);
      client.write(
        `POST /images/create?fromImage=${lying.host}/some/thing:1 HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n`,
      );
      await waitFor('the request', () => hanging.length > 0);
      await pullOk(engine, registry.reference);
      client.close();
      await waitFor('the daemon to leave the registry', () => hanging.every((response) => response.destroyed));
    } finally {
      await lying.stop();
    }
  });

  test('credentials that are no credentials are ignored', async () => {
    const reply = await call(
      engine.socketPath,
      'POST',
      `/images/create?fromImage=${encodeURIComponent(registry.reference)}`,
      { headers: { 'X-Registry-Auth': 'garbage' } },
    );
    assert.equal(reply.status, 200);
    assert.match(reply.text, /Status: Image is up to date/);
  });
});
