/** The changes of the API in versions 1.49 to 1.51, asked for in each; the same file passes on dockerd. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { MAX_API_VERSION } from '../../src/http/api-version.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { dockerd } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';

type Json = Readonly<Record<string, unknown>>;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'versions-cdi-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  await writeFile(
    join(dir, 'example.json'),
    JSON.stringify({
      cdiVersion: '0.6.0',
      kind: 'example.com/device',
      devices: ['two', 'one'].map((name) => ({ name, containerEdits: { env: [`DEVICE=${name}`] } })),
    }),
  );
  await writeFile(join(dir, 'broken.json'), '{');
  const kind =
    process.env['ENGINE_UNDER_TEST'] === 'dockerd'
      ? dockerd({ args: ['--cdi-spec-dir', dir] })
      : engined({ file: { 'cdi-spec-dirs': [`${dir}/`] } });
  ({ engine, image } = await startEngineWithImage(cleanup, kind));
});
after(() => cleanup.run());

const get = <T = Json>(path: string): Promise<T> => callJson<T>(engine.socketPath, 'GET', path);
const VERSIONS = ['1.48', '1.49', '1.50', '1.51'];
const isAtLeast = (version: string, other: string): boolean => Number(version) >= Number(other);

test('the newest version is in the headers, in the answers and in the CLI', async () => {
  assert.equal(MAX_API_VERSION.text, VERSIONS.at(-1));
  const ping = await call(engine.socketPath, 'GET', '/_ping');
  assert.equal(ping.headers['api-version'], '1.51');
  const version = await get<{ ApiVersion: string; MinAPIVersion: string }>('/version');
  assert.deepEqual([version.ApiVersion, version.MinAPIVersion], ['1.51', '1.24']);
  assert.equal(
    await engineOk(engine, ['version', '--format', '{{.Client.APIVersion}} {{.Server.APIVersion}}']),
    '1.51 1.51',
  );
  assert.equal((await call(engine.socketPath, 'GET', '/v1.52/_ping')).status, 400);
});

/** These members of the configuration were those of a container. */
const CONTAINER_MEMBERS = [
  'AttachStderr',
  'AttachStdin',
  'AttachStdout',
  'Domainname',
  'Hostname',
  'Image',
  'OpenStdin',
  'StdinOnce',
  'Tty',
];
const IMAGE_MEMBERS = ['Cmd', 'Entrypoint', 'Env', 'Labels', 'OnBuild', 'User', 'Volumes', 'WorkingDir'];

describe('an answer has what its version has', () => {
  for (const version of VERSIONS) {
    test(`info of ${version}`, async () => {
      const info = await get<
        Json & { RuncCommit: Json; DiscoveredDevices?: readonly Json[]; Warnings: readonly string[] | null }
      >(`/v${version}/info`);
      assert.equal('FirewallBackend' in info, isAtLeast(version, '1.49'));
      assert.equal('Expected' in info.RuncCommit, !isAtLeast(version, '1.49'));
      assert.deepEqual(
        [info['BridgeNfIptables'], info['BridgeNfIp6tables']],
        isAtLeast(version, '1.50') ? [undefined, undefined] : [false, false],
      );
      assert.deepEqual(
        info.DiscoveredDevices,
        isAtLeast(version, '1.50')
          ? [
              { Source: 'cdi', ID: 'example.com/device=one' },
              { Source: 'cdi', ID: 'example.com/device=two' },
            ]
          : undefined,
      );
      assert.equal(
        info.Warnings?.filter((line) => /^CDI: Error associated with spec file .*broken\.json: /.test(line)).length,
        1,
      );
    });

    test(`an image of ${version}`, async () => {
      const { Config } = await get<{ Config: Json }>(`/v${version}/images/${image}/json`);
      assert.deepEqual(
        Object.keys(Config).sort(),
        [...IMAGE_MEMBERS, ...(isAtLeast(version, '1.50') ? [] : CONTAINER_MEMBERS)].sort(),
      );
    });

    test(`the number of containers of an image in ${version}`, async () => {
      const create = (json: Json): Promise<{ Id: string }> =>
        callJson(engine.socketPath, 'POST', '/containers/create', { json });
      const count = async (): Promise<unknown> =>
        (await get<{ Containers: number }[]>(`/v${version}/images/json`)).map(({ Containers }) => Containers);
      const counted = isAtLeast(version, '1.51');
      assert.deepEqual(await count(), [counted ? 0 : -1]);
      const made = [await create({ Image: image, Cmd: ['true'] }), await create({ Image: image, Cmd: ['true'] })];
      assert.deepEqual(await count(), [counted ? 2 : -1]);
      for (const { Id } of made) await callJson(engine.socketPath, 'DELETE', `/containers/${Id}`);
    });

    test(`the platforms of a removal in ${version}`, async () => {
      await callJson(engine.socketPath, 'POST', `/images/${image}/tag?repo=versions/copy&tag=1`);
      const { Os, Architecture } = await get<{ Os: string; Architecture: string }>(`/images/${image}/json`);
      const own = JSON.stringify({ os: Os, architecture: Architecture });
      const remove = async (...platforms: readonly string[]): Promise<readonly [status: number, text: string]> => {
        const query = platforms.map((platform) => `platforms=${encodeURIComponent(platform)}`).join('&');
        const { status, text } = await call(
          engine.socketPath,
          'DELETE',
          `/v${version}/images/versions/copy:1?${query}`,
        );
        return [status, text];
      };
      const knows = isAtLeast(version, '1.50');
      if (knows) {
        for (const [platforms, status, message] of [
          [['x'], 400, /failed to parse platform: /],
          [[''], 400, /failed to parse platform: /],
          [['{"os":"linux"}'], 400, /both OS and Architecture must be provided/],
          [[own, own], 400, /multiple platforms are not supported/],
          [
            ['{"os":"linux","architecture":"s390x"}'],
            404,
            /versions\/copy:1 was found but its platform .* does not match/,
          ],
        ] as const) {
          const [actual, text] = await remove(...platforms);
          assert.equal(actual, status, text);
          assert.match(text, message);
        }
        await get('/images/versions/copy:1/json');
      }
      const [status, text] = await remove(...(knows ? [own] : ['x', own]));
      assert.equal(status, 200, text);
      assert.deepEqual(JSON.parse(text), [{ Untagged: 'versions/copy:1' }]);
    });
  }
});
