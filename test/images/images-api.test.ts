/** The image endpoints of a real daemon: shapes by version, filters, import, prune, commit. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { after, before, test } from 'node:test';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { call, callJson, RawConnection } from '../support/http.js';
import { busyboxEntries, tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const isDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;

before(async () => {
  ({ engine, registry } = await startEngineWithRegistry(cleanup));
});
after(() => cleanup.run());

type Json = Record<string, unknown>;
const get = <T = Json>(path: string): Promise<T> => callJson<T>(engine.socketPath, 'GET', path);
const filters = (value: unknown): string => `filters=${encodeURIComponent(JSON.stringify(value))}`;

async function refused(status: number, message: RegExp, method: string, path: string): Promise<void> {
  const reply = await call(engine.socketPath, method, path);
  assert.equal(reply.status, status, `${method} ${path}: ${reply.text}`);
  assert.match((JSON.parse(reply.text) as { message: string }).message, message);
}

test('the list has the fields of each version', async () => {
  const [newest] = await get<Json[]>('/v1.51/images/json');
  assert.ok(newest);
  if (!isDockerd)
    assert.deepEqual(newest['Descriptor'], {
      mediaType: registry.image.mediaType,
      digest: registry.image.digest,
      size: registry.image.manifest.length,
    });
  assert.deepEqual(
    Object.keys(newest)
      .filter((key) => key !== 'Descriptor')
      .sort(),
    ['Containers', 'Created', 'Id', 'Labels', 'ParentId', 'RepoDigests', 'RepoTags', 'SharedSize', 'Size'],
  );
  assert.equal(newest['Id'], registry.image.id);
  assert.deepEqual(newest['RepoTags'], [registry.reference]);
  assert.equal(newest['Created'], Math.floor(Date.parse('2024-01-02T03:04:05Z') / 1000));
  assert.equal(newest['SharedSize'], -1);
  const [old] = await get<Json[]>('/v1.24/images/json');
  assert.equal(old?.['VirtualSize'], old?.['Size']);
  const [shared] = await get<Json[]>('/v1.51/images/json?shared-size=1');
  assert.equal(shared?.['SharedSize'], 0);
});

test('filters: both forms, unknown keys, names that are not there', async () => {
  const ids = async (query: string): Promise<unknown[]> =>
    (await get<Json[]>(`/v1.51/images/json?${query}`)).map(({ Id }) => Id);
  assert.deepEqual(await ids(filters({ label: { 'flavour=plain': true } })), [registry.image.id]);
  assert.deepEqual(await ids(filters({ label: ['flavour', 'missing'] })), []);
  assert.deepEqual(await ids(filters({ reference: [`${registry.host}/*/busybox`] })), [registry.image.id]);
  assert.deepEqual(await ids(filters({ dangling: ['true'] })), []);
  assert.deepEqual(await ids(filters({ until: ['1h'] })), [registry.image.id]);
  await refused(400, /invalid filter 'bogus'/, 'GET', `/images/json?${filters({ bogus: ['1'] })}`);
  await refused(
    400,
    /invalid filter 'dangling=\[perhaps\]'/,
    'GET',
    `/images/json?${filters({ dangling: ['perhaps'] })}`,
  );
  await refused(404, /No such image: nothing:latest/, 'GET', `/images/json?${filters({ before: ['nothing'] })}`);
});

test('inspect has the fields of each version', async () => {
  const now = await get(`/v1.51/images/${registry.reference}/json`);
  assert.equal(now['Id'], registry.image.id);
  assert.equal(now['Created'], '2024-01-02T03:04:05.678901234Z');
  assert.deepEqual(now['RootFS'], { Type: 'layers', Layers: registry.image.layers.map(({ diffId }) => diffId) });
  assert.ok(!('VirtualSize' in now) && !('ContainerConfig' in now));
  const config = now['Config'] as Json;
  assert.deepEqual(
    [config['Cmd'], config['Hostname'], config['Entrypoint'], config['Labels']],
    [['sh'], undefined, null, { flavour: 'plain' }],
  );
  const old = await get(`/v1.24/images/${registry.image.id.slice(7, 19)}/json`);
  assert.ok('VirtualSize' in old && 'ContainerConfig' in old);
  await refused(
    400,
    /cannot both be set/,
    'GET',
    `/v1.51/images/${registry.reference}/json?manifests=1&platform=%7B%7D`,
  );
});

test('a platform that the image does not have is not found', { skip: isDockerd }, async () => {
  const platform = encodeURIComponent(JSON.stringify({ os: 'linux', architecture: 's390x' }));
  await refused(
    404,
    /does not match the specified platform \(linux\/s390x\)/,
    'GET',
    `/v1.51/images/${registry.reference}/json?platform=${platform}`,
  );
});

test(
  'a container of a foreign platform is made with a warning, unless the platform was asked for',
  { skip: isDockerd },
  async () => {
    const headers = { 'Content-Type': 'application/x-tar' };
    const imported = await call(
      engine.socketPath,
      'POST',
      '/images/create?fromSrc=-&repo=foreign&tag=1&platform=linux%2Farm%2Fv7',
      { body: tarOf([{ path: 'f' }]), headers },
    );
    assert.equal(imported.status, 200, imported.text);
    const create = (query: string): ReturnType<typeof call> =>
      call(engine.socketPath, 'POST', `/containers/create${query}`, { json: { Image: 'foreign:1', Cmd: ['/f'] } });
    const made = async (query: string): Promise<string[]> => {
      const { Id, Warnings } = JSON.parse((await create(query)).text) as { Id: string; Warnings: string[] };
      await engineOk(engine, ['rm', Id]);
      return Warnings;
    };
    const warning = (await made('')).join();
    assert.match(warning, /^The requested image's platform \(linux\/arm\/v7\) does not match the detected host /);
    assert.match(warning, /host platform \(linux\/\S+\) and no specific platform was requested$/);
    assert.deepEqual(await made('?platform=linux%2Farm%2Fv7'), []);
    assert.deepEqual(await made('?platform=linux%2Farm64'), []);
    assert.equal((await create('?platform=linux%2Farm%2Fv6')).status, 404);
    await engineOk(engine, ['rmi', 'foreign:1']);
  },
);

test('history is newest first, with the ID and the tags of the image on top', async () => {
  const [top, bottom] = await get<Json[]>(`/images/${registry.reference}/history`);
  assert.deepEqual(
    [top?.['Id'], top?.['CreatedBy'], top?.['Tags']],
    [registry.image.id, 'layer 1', [registry.reference]],
  );
  assert.deepEqual([bottom?.['Id'], bottom?.['CreatedBy'], bottom?.['Tags']], ['<missing>', 'layer 0', null]);
});

test('tags: bad names are refused, a digest is no tag', async () => {
  await refused(400, /invalid reference format/, 'POST', `/images/${registry.reference}/tag?repo=`);
  await refused(400, /invalid/, 'POST', `/images/${registry.reference}/tag?repo=a&tag=b/c`);
  await refused(400, /refusing to create/, 'POST', `/images/${registry.reference}/tag?repo=sha256&tag=x`);
  await refused(404, /No such image: nothing:latest/, 'POST', '/images/nothing/tag?repo=a');
});

test('pull parameters that make no sense', async () => {
  await refused(400, /./, 'POST', '/images/create');
  await refused(403, /reserved name/, 'POST', '/images/create?fromImage=scratch&tag=latest');
  await refused(400, /./, 'POST', `/images/create?fromImage=${registry.host}/a&tag=b%2Fc`);
  await refused(400, /./, 'POST', `/images/create?fromImage=${registry.host}/a&tag=b&platform=a/b/c/d`);
});

test('an archive is imported, named and runs', async () => {
  const body = gzipSync(tarOf(busyboxEntries()));
  const query =
    'fromSrc=-&repo=imported&tag=one&message=from%20a%20test&changes=CMD%20%5B%22echo%22%2C%22hi%22%5D&' +
    'changes=ENV%20A%3D1';
  const reply = await call(engine.socketPath, 'POST', `/images/create?${query}`, {
    body,
    headers: { 'Content-Type': 'text/plain' },
  });
  assert.equal(reply.status, 200, reply.text);
  const last = JSON.parse(reply.text.trim().split('\r\n').at(-1) ?? '') as { status: string };
  const image = await get('/images/imported:one/json');
  assert.equal(image['Id'], last.status);
  assert.equal(image['Comment'], 'from a test');
  assert.deepEqual((image['Config'] as Json)['Env'], ['A=1']);
  assert.equal(await engineOk(engine, ['run', '--rm', '--network', 'none', 'imported:one']), 'hi');
  await engineOk(engine, ['rmi', 'imported:one']);
});

test('what is no archive is not imported', async () => {
  const reply = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=junk', {
    body: 'this is not a tar '.repeat(100),
    headers: { 'Content-Type': 'text/plain' },
  });
  assert.match(reply.text, /message/);
  await refused(404, /No such image: junk:latest/, 'GET', '/images/junk/json');
  await refused(400, /is not a valid change command/, 'POST', '/images/create?fromSrc=-&repo=junk&changes=RUN%20x');
});

test('prune takes the untagged, and tells what was freed', async () => {
  const container = await engineOk(engine, ['create', registry.reference]);
  const made = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/commit?container=${container}`);
  const kept = await callJson<{ ImagesDeleted: unknown }>(
    engine.socketPath,
    'POST',
    `/images/prune?${filters({ until: ['2020-01-01'] })}`,
  );
  assert.equal(kept.ImagesDeleted, null);
  const { ImagesDeleted } = await callJson<{ ImagesDeleted: { Deleted?: string }[] }>(
    engine.socketPath,
    'POST',
    '/images/prune',
  );
  assert.ok(ImagesDeleted.some(({ Deleted }) => Deleted === made.Id));
  await engineOk(engine, ['rm', container]);
  assert.equal((await get<Json[]>('/images/json')).length, 1);
});

const isOriginal = process.env['ENGINE_UNDER_TEST'] === 'dockerd';

test('inspect tells where the layers are', async () => {
  const { GraphDriver } = await get<{ GraphDriver: { Name: string; Data: Record<string, string> } }>(
    `/images/${registry.reference}/json`,
  );
  assert.equal(GraphDriver.Name, 'overlay2');
  assert.deepEqual(Object.keys(GraphDriver.Data).sort(), ['LowerDir', 'MergedDir', 'UpperDir', 'WorkDir']);
  assert.equal(readFileSync(`${GraphDriver.Data['UpperDir']}/etc/motd`, 'utf8'), 'hello from the second layer\n');
  assert.ok(existsSync(`${GraphDriver.Data['LowerDir']}/bin/busybox`));
});

test('removal: names first, then the image with its layers; records and events tell each', async () => {
  const since = Math.floor(Date.now() / 1000);
  const container = await engineOk(engine, ['create', registry.reference, 'sh']);
  await engineOk(engine, ['commit', '-m', 'a comment', '-a', 'an author', '-c', 'ENV A=1', container, 'one:a']);
  await engineOk(engine, ['rm', container]);
  const image = await get<{
    Id: string;
    Comment: string;
    Author: string;
    Parent: string;
    RootFS: { Layers: string[] };
    Metadata: { LastTagTime: string };
  }>('/images/one:a/json');
  assert.deepEqual([image.Comment, image.Author, image.Parent], ['a comment', 'an author', registry.image.id]);
  assert.ok(Date.parse(image.Metadata.LastTagTime) / 1000 >= since - 1);
  for (const name of ['one:b', 'two:c'])
    await callJson(engine.socketPath, 'POST', `/images/one:a/tag?repo=${name.slice(0, 3)}&tag=${name.slice(4)}`);
  const remove = (path: string): Promise<Json[]> => callJson<Json[]>(engine.socketPath, 'DELETE', `/images/${path}`);
  assert.deepEqual(await remove('one:b'), [{ Untagged: 'one:b' }]);
  await refused(
    409,
    new RegExp(
      `conflict: unable to delete ${image.Id.slice(7, 19)} \\(must be forced\\) - image is referenced in ` +
        'multiple repositories',
    ),
    'DELETE',
    `/images/${image.Id.slice(7, 19)}`,
  );
  await refused(
    409,
    /conflict: unable to delete \S+ \(cannot be forced\) - image has dependent child images/,
    'DELETE',
    `/images/${registry.image.id}?force=1`,
  );
  assert.deepEqual(await remove('two:c'), [{ Untagged: 'two:c' }]);
  const last = await remove(image.Id);
  assert.deepEqual(last.slice(0, 2), [{ Untagged: 'one:a' }, { Deleted: image.Id }]);
  assert.equal(last.length, 2 + image.RootFS.Layers.length - registry.image.layers.length);
  const seen = await engineOk(engine, [
    'events',
    '--since',
    String(since),
    '--until',
    String(Math.ceil(Date.now() / 1000) + 1),
    '--filter',
    'type=image',
    '--format',
    '{{.Action}} {{.Actor.Attributes.name}}',
  ]);
  // The original tells of a tag with the name, of an untag with the ID.
  assert.deepEqual(seen.split('\n').slice(-8), [
    `create ${image.Id}`,
    'tag one:a',
    'tag one:b',
    'tag two:c',
    `untag ${image.Id}`,
    `untag ${image.Id}`,
    `untag ${image.Id}`,
    `delete ${image.Id}`,
  ]);
});

test('images of containers are kept, or only untagged', async () => {
  await engineOk(engine, ['tag', registry.reference, 'used:1']);
  const container = await engineOk(engine, ['create', 'used:1']);
  const short = registry.image.id.slice(7, 19);
  await refused(
    409,
    new RegExp(`conflict: unable to delete ${short} \\(must be forced\\)`),
    'DELETE',
    `/images/${registry.image.id}`,
  );
  assert.deepEqual(await callJson(engine.socketPath, 'DELETE', '/images/used:1'), [{ Untagged: 'used:1' }]);
  await refused(
    409,
    new RegExp(
      `conflict: unable to remove repository reference "${registry.reference}" \\(must force\\) - ` +
        `container ${container.slice(0, 12)} is using its referenced image ${short}`,
    ),
    'DELETE',
    `/images/${registry.reference}`,
  );
  await engineOk(engine, ['rm', container]);
  await refused(404, /No such image: used:1/, 'DELETE', '/images/used:1');
});

test('a commit whose client leaves is ended, and leaves nothing', { skip: isDockerd }, async () => {
  const container = await engineOk(engine, ['run', '-d', registry.reference, 'sleep', '1000']);
  // To read all of it takes seconds.
  await engineOk(engine, ['exec', container, 'truncate', '-s', '4G', '/large']);
  const statusOf = async (): Promise<string> =>
    (await get<{ State: { Status: string } }>(`/containers/${container}/json`)).State.Status;
  const staged = (): string[] =>
    readdirSync(join(engine.dir, 'data')).flatMap((store) => {
      const staging = join(engine.dir, 'data', store, 'staging');
      return existsSync(staging) ? readdirSync(staging) : [];
    });
  assert.deepEqual(staged(), []);
  const connection = await RawConnection.open(engine.socketPath);
  connection.write(`POST /commit?container=${container}&repo=left HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n`);
  await waitFor('the commit to begin', () => staged().length > 0);
  connection.close();
  await waitFor('it to end', async () => staged().length === 0 && (await statusOf()) === 'running');
  await refused(404, /No such image: left/, 'GET', '/images/left/json');
  assert.deepEqual((await get<Json[]>('/images/json')).length, 1);
  await engineOk(engine, ['rm', '-f', container]);
});

test('before and since, and what an image shares', async () => {
  const container = await engineOk(engine, ['create', registry.reference, 'sh']);
  await engineOk(engine, ['commit', container, 'newer:1']);
  const ids = async (query: string): Promise<unknown[]> =>
    (await get<Json[]>(`/images/json?${query}`)).map(({ Id }) => Id);
  const { Id } = await get<{ Id: string }>('/images/newer:1/json');
  assert.deepEqual(await ids(filters({ before: ['newer:1'] })), [registry.image.id]);
  assert.deepEqual(await ids(filters({ since: [registry.reference] })), [Id]);
  assert.deepEqual(await ids(filters({ reference: ['newer'] })), [Id]);
  assert.deepEqual(await ids(filters({ label: ['flavour=plain'], reference: ['newer:*'] })), [Id]);
  if (!isOriginal) {
    const shared = await get<{ Id: string; SharedSize: number; Size: number }[]>('/v1.51/images/json?shared-size=1');
    const base = shared.find((one) => one.Id === registry.image.id);
    assert.ok(base);
    assert.equal(base.SharedSize, base.Size);
    assert.equal(shared.find((one) => one.Id === Id)?.SharedSize, base.Size);
  }
  await engineOk(engine, ['rm', container]);
  await engineOk(engine, ['rmi', 'newer:1']);
});

test('an import from a URL, compressed in any way', { skip: isOriginal }, async () => {
  const archive = tarOf(busyboxEntries());
  const bodies: Readonly<Record<string, Buffer>> = {
    '/a.tar': archive,
    '/a.tar.xz': execFileSync('xz', ['-1c'], { input: archive, maxBuffer: Infinity }),
    '/a.tar.bz2': execFileSync('bzip2', ['-1c'], { input: archive, maxBuffer: Infinity }),
  };
  const server = createServer((request, response) => {
    const body = bodies[request.url ?? ''];
    response.writeHead(body ? 200 : 404).end(body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    const ids = new Set<unknown>();
    for (const path of Object.keys(bodies)) {
      await engineOk(engine, [
        'import',
        '--change',
        'CMD ["true"]',
        '--platform',
        'linux/amd64',
        `${url}${path}`,
        'from-url:1',
      ]);
      const { RootFS, Comment } = await get<{ RootFS: { Layers: string[] }; Comment: string }>(
        '/images/from-url:1/json',
      );
      ids.add(RootFS.Layers[0]);
      assert.equal(Comment, `Imported from ${url}${path}`);
      await engineOk(engine, ['rmi', 'from-url:1']);
    }
    assert.equal(ids.size, 1);
    await refused(400, /404/, 'POST', `/images/create?fromSrc=${encodeURIComponent(`${url}/nothing`)}&repo=x`);
    await refused(400, /unsupported protocol scheme "ftp"/, 'POST', '/images/create?fromSrc=ftp%3A%2F%2Fx%2Fy&repo=x');
    await refused(400, /is not a URL/, 'POST', '/images/create?fromSrc=http%3A%2F%2F%5Bbad&repo=x');
    await refused(
      400,
      /operating system is not supported/,
      'POST',
      `/images/create?fromSrc=${encodeURIComponent(`${url}/a.tar`)}&repo=x&platform=windows%2Famd64`,
    );
  } finally {
    server.close();
  }
});
