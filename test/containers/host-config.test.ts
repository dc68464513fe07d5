/**
 * Effects of settings of HostConfig and Config, read inside containers. `npm run compare` puts the same table to both
 * engines; here it has the expectations that hold on every host.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { EffectRunner } from '../compare/effect-runner.js';
import { EFFECTS } from '../compare/effects.js';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { call, callJson } from '../support/http.js';
import { mountsBelow, removeCgroups } from '../support/leftovers.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let runner: EffectRunner;

before(async () => {
  const dir = mkdtempSync(join(tmpdir(), 'effects-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
  runner = new EffectRunner(engine, image, dir, '/v1.41');
  await runner.prepare();
});

after(() => cleanup.run());

describe('effects', { concurrency: 4 }, () => {
  for (const [name, effect] of Object.entries(EFFECTS)) {
    const { expected, script, why } = effect;
    if (expected === undefined) continue;
    const isElsewhere =
      script.includes('/sys/fs/cgroup/') && !existsSync('/sys/fs/cgroup/memory/memory.limit_in_bytes');
    const isKnown = why !== undefined && process.env['ENGINE_UNDER_TEST'] === 'dockerd';
    test(name, { skip: isElsewhere ? 'reads control groups of version 1' : isKnown ? why : false }, async () =>
      assert.equal(await runner.run(effect), expected),
    );
  }
});

test(
  'namespaces of others: only of who runs and shares, by name or ID, as long as it runs',
  { skip: process.env['ENGINE_UNDER_TEST'] === 'dockerd' && 'other statuses' },
  async () => {
    const create = async (name: string, host: object, json: object = {}): Promise<string> =>
      (
        await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/create?name=${name}`, {
          json: {
            Image: image,
            Cmd: ['sleep', '1000'],
            StopTimeout: 0,
            ...json,
            HostConfig: { NetworkMode: 'none', ...host },
          },
        })
      ).Id;
    const refusedStart = async (host: object): Promise<string> => {
      const id = await create('joiner', host);
      const { status, text } = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
      await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`);
      return `${status} ${(JSON.parse(text) as { message: string }).message}`;
    };
    const id = await create('alone', { IpcMode: 'private' });
    for (const kind of ['IPC', 'PID', 'network'] as const) {
      const field = kind === 'network' ? 'NetworkMode' : kind === 'IPC' ? 'IpcMode' : 'PidMode';
      assert.equal(
        await refusedStart({ [field]: 'container:alone' }),
        kind === 'network'
          ? '409 cannot join network namespace of a non running container: container alone is created'
          : `409 failed to join ${kind} namespace: container ${id} is not running`,
      );
    }
    await callJson(engine.socketPath, 'POST', '/containers/alone/start');
    assert.match(
      await refusedStart({ IpcMode: 'container:alone' }),
      /^400 cannot join IPC of container .*non-shareable IPC/,
    );
    // A name that is given to another container later does not change what was meant.
    const joiner = await create('joiner', { NetworkMode: 'container:alone', PidMode: `container:${id.slice(0, 12)}` });
    const shown = await callJson<{
      Config: { Hostname: string };
      HostConfig: Record<string, string>;
      HostsPath: string;
    }>(engine.socketPath, 'GET', `/containers/${joiner}/json`);
    assert.deepEqual(
      [
        shown.HostConfig['NetworkMode'],
        shown.HostConfig['PidMode'],
        shown.Config.Hostname,
        shown.HostsPath.includes(id),
      ],
      [`container:${id}`, `container:${id}`, id.slice(0, 12), true],
    );
    for (const name of ['joiner', 'alone']) await callJson(engine.socketPath, 'DELETE', `/containers/${name}?force=1`);
  },
);

test(
  'the shared memory of a donor is gone with it',
  { skip: process.env['ENGINE_UNDER_TEST'] === 'dockerd' && 'another place' },
  async () => {
    const shared = (): string[] => mountsBelow(engine.dir).filter((point) => point.includes('/shm/'));
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
      json: { Image: image, Cmd: ['sleep', '1000'], HostConfig: { NetworkMode: 'none', IpcMode: 'shareable' } },
    });
    await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`);
    assert.equal(shared().filter((point) => point.includes(Id)).length, 1);
    await callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`);
    assert.equal(shared().filter((point) => point.includes(Id)).length, 0);
  },
);

const isV1 = existsSync('/sys/fs/cgroup/memory/memory.limit_in_bytes');
test(
  'a relative cgroup parent is below the group that the daemon has in each controller',
  { skip: !isV1 && 'control groups of version 1' },
  async () => {
    const parent = `engrel${randomBytes(4).toString('hex')}`;
    /** Path by the controllers of a hierarchy. */
    const groupsOf = (pid: number): Map<string, string> =>
      new Map(
        readFileSync(`/proc/${pid}/cgroup`, 'utf8')
          .trim()
          .split('\n')
          .filter((line) => !line.startsWith('0::'))
          .map((line) => {
            const [, controllers = '', path = ''] = line.split(':');
            return [controllers, path];
          }),
      );
    const own = groupsOf(engine.pid);
    const places = [...own].map(([controllers, path]) =>
      join('/sys/fs/cgroup', controllers.replace('name=', ''), path, parent),
    );
    /** The runtime removes the container's groups behind the reply. It makes their parent without controllers, too. */
    const areRemoved = (): boolean => {
      try {
        for (const place of places.filter((path) => existsSync(path))) rmdirSync(place);
      } catch {
        return false;
      }
      return removeCgroups(parent);
    };
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
      json: {
        Image: image,
        Cmd: ['sleep', '1000'],
        StopTimeout: 0,
        HostConfig: { NetworkMode: 'none', CgroupParent: parent },
      },
    });
    try {
      await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`);
      const { State } = await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${Id}/json`);
      assert.deepEqual(
        groupsOf(State.Pid),
        new Map([...own].map(([controllers, path]) => [controllers, join(path, parent, Id)])),
      );
      const stats = await callJson<{ pids_stats: { current?: number } }>(
        engine.socketPath,
        'GET',
        `/containers/${Id}/stats?stream=0&one-shot=1`,
      );
      assert.ok((stats.pids_stats.current ?? 0) > 0, 'its counters are found there');
    } finally {
      await call(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`);
      await waitFor('the groups to be removed', areRemoved);
    }
  },
);
