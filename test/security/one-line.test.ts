/**
 * Values that are written line by line into files of a container cannot add lines, and no control group leaves the
 * daemon's tree.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';

const LINE = 'a\n192.0.2.1 registry.example';
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
});
after(() => cleanup.run());

afterEach(() => removeContainers(engine));

async function refused(field: string, path: string, json: unknown): Promise<void> {
  const { status, text } = await call(engine.socketPath, 'POST', path, { json });
  assert.equal(status, 400, `${field} ${JSON.stringify(json)}: ${text}`);
  assert.match((JSON.parse(text) as { message: string }).message, new RegExp(field));
}

test('hosts file and resolver configuration', async () => {
  for (const line of [LINE, 'a\r', 'a\0b', '\n', 'a\tb\n', 'a\u007f']) {
    for (const field of ['Hostname', 'Domainname'])
      await refused(field, '/containers/create', { Image: image, [field]: line });
    for (const field of ['ExtraHosts', 'Dns', 'DnsSearch', 'DnsOptions']) {
      for (const value of [line, `${line}:192.0.2.1`, `name:192.0.2.1${line}`])
        await refused(field, '/containers/create', { Image: image, HostConfig: { [field]: [value] } });
    }
    await refused('Links', '/containers/create', { Image: image, HostConfig: { Links: [`x:${line}`] } });
    for (const field of ['Aliases', 'Links']) {
      await refused(field, '/containers/create', {
        Image: image,
        HostConfig: { NetworkMode: 'bridge' },
        NetworkingConfig: { EndpointsConfig: { bridge: { [field]: [line] } } },
      });
    }
  }
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: image, Cmd: ['sleep', '1000'] },
  });
  await callJson(engine.socketPath, 'POST', '/networks/create', { json: { Name: 'aliased' } });
  await refused('Aliases', '/networks/aliased/connect', { Container: Id, EndpointConfig: { Aliases: [LINE] } });
  await callJson(engine.socketPath, 'DELETE', '/networks/aliased');
});

test('the daemon takes no such options either', async () => {
  const dir = join(engine.dir, 'refused');
  const [program = '', ...args] = engined().command(dir, join(dir, 'socket'));
  for (const option of ['--dns', '--dns-search', '--dns-opt']) {
    await assert.rejects(
      promisify(execFile)(program, [...args, option, `ndots:1${LINE}`], { timeout: 60_000 }),
      (error: { code?: unknown; stderr?: string; killed?: boolean }) => {
        assert.notEqual(error.killed, true, 'it started');
        assert.match(String(error.stderr), /dns/);
        return true;
      },
    );
  }
});

test('a cgroup that leads out of the tree', async () => {
  for (const parent of ['..', '/..', '../x', '/engine/../../../x', 'a/../b', '/a/..', 'a\n']) {
    await refused('CgroupParent', '/containers/create', { Image: image, HostConfig: { CgroupParent: parent } });
  }
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: image, Cmd: ['sleep', '1000'], HostConfig: { CgroupParent: '/engine/a..b' } },
  });
  const shown = await callJson<{ HostConfig: { CgroupParent: string } }>(
    engine.socketPath,
    'GET',
    `/containers/${Id}/json`,
  );
  assert.equal(shown.HostConfig.CgroupParent, '/engine/a..b');
});
