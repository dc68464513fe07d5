/** The unmodified CLI as if it were an old one, and what answers look like to clients of other versions. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { dockerOk } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';

const cleanup = new Cleanup();
let image: string;
let engine: Engine;

before(async () => {
  ({ engine, image } = await startEngineWithRegistry(cleanup));
  await callJson(engine.socketPath, 'POST', '/networks/create', { json: { Name: 'own' } });
});

after(() => cleanup.run());
afterEach(async () => {
  delete process.env['DOCKER_API_VERSION'];
  // One failure must not make the next tests fail.
  await call(engine.socketPath, 'DELETE', '/containers/web?force=1');
});

const isOriginal = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const versions = ['1.25', '1.41', '1.44', '1.51'].filter((version) => !isOriginal || Number(version.slice(2)) <= 41);

const WEB_FLAGS = [
  '--network',
  'own',
  '--network-alias',
  'site',
  '-p',
  '127.0.0.1::80',
  '-v',
  'kept:/kept',
  '--tmpfs',
  '/run',
  '-m',
  '64m',
  '--cpu-quota',
  '50000',
];
const WEB = 'echo up; trap exit TERM; sleep 1000 & wait';

async function shownOf(run: (...args: string[]) => Promise<string>): Promise<object> {
  const [shown] = JSON.parse(await run('inspect', 'web')) as {
    NetworkSettings: { Networks: Record<string, { Aliases: string[] }> };
    HostConfig: Record<string, unknown>;
  }[];
  const limits = ['Memory', 'MemorySwap', 'CpuQuota'].map((name) => shown?.HostConfig[name]);
  return { Aliases: shown?.NetworkSettings.Networks['own']?.Aliases, limits };
}

describe('a day with the CLI', () => {
  for (const version of versions) {
    test(`of API ${version}`, async () => {
      process.env['DOCKER_API_VERSION'] = version;
      const run = async (...args: string[]): Promise<string> => (await dockerOk(engine, args)).trim();
      assert.equal(await run('version', '--format', '{{.Client.APIVersion}}'), version);
      const id = await run('run', '-d', '--name', 'web', ...WEB_FLAGS, image, 'sh', '-c', WEB);
      assert.match(
        await run('ps', '--format', '{{.ID}} {{.Status}} {{.Ports}}'),
        new RegExp(`^${id.slice(0, 12)} Up .* 127.0.0.1:\\d+->80/tcp$`),
      );
      assert.equal(await run('exec', 'web', 'sh', '-c', 'echo $((6 * 7))'), '42');
      assert.equal(await run('logs', 'web'), 'up');
      assert.equal(
        await run(
          'run',
          '--rm',
          '-i',
          '--network',
          'own',
          image,
          'sh',
          '-c',
          'ping -c1 site >/dev/null && echo reached',
        ),
        'reached',
      );
      assert.deepEqual(await shownOf(run), {
        Aliases: Number(version.slice(2)) < 45 ? ['site', id.slice(0, 12)] : ['site'],
        limits: [67_108_864, 134_217_728, 50_000],
      });
      await run('update', '--memory', '70m', '--memory-swap', '140m', 'web');
      await run('stop', '-t', '1', 'web');
      assert.equal(await run('wait', 'web'), await run('inspect', '--format', '{{.State.ExitCode}}', 'web'));
      await run('rm', '-v', 'web');
      assert.match(await run('volume', 'ls', '-q'), /^kept$/m);
      assert.match(await run('images', '--format', '{{.Repository}}:{{.Tag}}'), new RegExp(`^${image}$`, 'm'));
      // Named volumes go too when an old client prunes.
      await run('volume', 'prune', '-f');
      assert.equal(await run('volume', 'ls', '-q'), Number(version.slice(2)) < 42 ? '' : 'kept');
      await run('volume', 'rm', '-f', 'kept');
    });
  }
});

test(
  'what a version did not know is not done, what it refused is refused',
  { skip: isOriginal && 'newer than the original' },
  async () => {
    const create = async (
      version: string,
      host: object,
      endpoints: object = {},
      query = '',
    ): Promise<{ status: number; message?: string; host: Record<string, unknown>; warnings: readonly string[] }> => {
      const { status, text } = await call(engine.socketPath, 'POST', `/v${version}/containers/create?${query}`, {
        json: { Image: image, HostConfig: host, NetworkingConfig: { EndpointsConfig: endpoints } },
      });
      const answer = JSON.parse(text) as { Id?: string; message?: string; Warnings?: string[] };
      if (answer.Id === undefined) return { status, message: answer.message ?? '', host: {}, warnings: [] };
      const { HostConfig } = await callJson<{ HostConfig: Record<string, unknown> }>(
        engine.socketPath,
        'GET',
        `/v${version}/containers/${answer.Id}/json`,
      );
      await callJson(engine.socketPath, 'DELETE', `/containers/${answer.Id}`);
      return { status, host: HostConfig, warnings: answer.Warnings ?? [] };
    };
    assert.deepEqual(
      [
        (await create('1.42', { Annotations: { a: 'b' } })).host['Annotations'],
        (await create('1.43', { Annotations: { a: 'b' } })).host['Annotations'],
      ],
      [undefined, { a: 'b' }],
    );
    assert.deepEqual(
      [(await create('1.39', {})).host['IpcMode'], (await create('1.40', {})).host['IpcMode']],
      ['shareable', 'private'],
    );
    assert.deepEqual(
      [
        (await create('1.41', { ConsoleSize: [5, 6] })).host['ConsoleSize'],
        (await create('1.42', { ConsoleSize: [5, 6] })).host['ConsoleSize'],
      ],
      [
        [0, 0],
        [5, 6],
      ],
    );
    assert.equal((await create('1.24', { AutoRemove: true })).host['AutoRemove'], false);
    assert.match(
      (await create('1.43', {}, { bridge: {}, own: {} })).message ?? '',
      /^Container cannot be created with multiple network endpoints/,
    );
    assert.equal((await create('1.44', {}, { bridge: {}, own: {} })).status, 201);
    const mount = { Mounts: [{ Type: 'image', Source: image, Target: '/x' }] };
    assert.deepEqual([(await create('1.47', mount)).status, (await create('1.48', mount)).status], [400, 201]);
    const subpath = { Mounts: [{ Type: 'volume', Source: 'parts', Target: '/x', VolumeOptions: { Subpath: 'a' } }] };
    assert.deepEqual([(await create('1.44', subpath)).status, (await create('1.45', subpath)).status], [400, 201]);
    await callJson(engine.socketPath, 'DELETE', '/volumes/parts');
    assert.equal((await create('1.40', {}, {}, 'platform=linux/s390x')).status, 201);
    assert.equal((await create('1.41', {}, {}, 'platform=linux/s390x')).status, 404);
    const driven = { VolumeDriver: 'local', Mounts: [{ Type: 'volume', Target: '/x' }] };
    assert.deepEqual(
      [(await create('1.47', driven)).warnings.length, (await create('1.48', driven)).warnings.length],
      [0, 1],
    );
  },
);

test(
  'containers tell the manifest of their image since 1.48, and annotations in lists since 1.46',
  { skip: isOriginal && 'newer than the original' },
  async () => {
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
      json: { Image: image, HostConfig: { Annotations: { a: 'b' } } },
    });
    const listed = async (version: string) =>
      (
        await callJson<{ Id: string; HostConfig: { Annotations?: object }; ImageManifestDescriptor?: object }[]>(
          engine.socketPath,
          'GET',
          `/v${version}/containers/json?all=1`,
        )
      ).find((item) => item.Id === Id);
    const { RepoDigests } = await callJson<{ RepoDigests: string[] }>(
      engine.socketPath,
      'GET',
      `/images/${image}/json`,
    );
    const manifest = (await listed('1.48'))?.ImageManifestDescriptor as {
      digest: string;
      mediaType: string;
      size: number;
      platform: object;
    };
    assert.equal(manifest.digest, RepoDigests[0]?.split('@')[1]);
    assert.deepEqual(
      [manifest.mediaType.includes('manifest'), manifest.size > 0, Object.keys(manifest.platform).sort()],
      [true, true, ['architecture', 'os']],
    );
    const members: unknown[] = [];
    for (const version of ['1.45', '1.46', '1.47', '1.48', '1.51']) {
      const item = await listed(version);
      const shown = await callJson<{ ImageManifestDescriptor?: object }>(
        engine.socketPath,
        'GET',
        `/v${version}/containers/${Id}/json`,
      );
      assert.deepEqual(item?.ImageManifestDescriptor, shown.ImageManifestDescriptor);
      members.push([item?.HostConfig.Annotations, shown.ImageManifestDescriptor]);
    }
    assert.deepEqual(members, [
      [undefined, undefined],
      [{ a: 'b' }, undefined],
      [{ a: 'b' }, undefined],
      [{ a: 'b' }, manifest],
      [{ a: 'b' }, manifest],
    ]);
    await callJson(engine.socketPath, 'DELETE', `/containers/${Id}`);
  },
);
