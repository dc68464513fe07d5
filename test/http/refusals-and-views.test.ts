/** Refusals and views of containers as dockerd of today has them; this file passes on it, too. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';

type Json = Readonly<Record<string, unknown>>;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const get = <T = Json>(path: string): Promise<T> => callJson<T>(engine.socketPath, 'GET', path);
const create = async (host: Json, config: Json = {}, query = ''): Promise<{ Id: string; Warnings: string[] }> =>
  callJson(engine.socketPath, 'POST', `/v1.51/containers/create${query}`, {
    json: { Image: image, Cmd: ['sleep', '1000'], ...config, HostConfig: { NetworkMode: 'none', ...host } },
  });
const remove = (name: string): Promise<unknown> => callJson(engine.socketPath, 'DELETE', `/containers/${name}?force=1`);

async function refused(method: string, path: string, json?: Json): Promise<string> {
  const { status, text } = await call(engine.socketPath, method, path, json === undefined ? {} : { json });
  return `${status} ${(JSON.parse(text) as { message?: string }).message ?? text}`;
}

test('a count of retries needs the policy that has one, also where no policy is named', async () => {
  for (const [count, words] of [
    [1, ''],
    [-1, ' and cannot be negative'],
  ] as const) {
    assert.equal(
      await refused('POST', '/v1.51/containers/create', {
        Image: image,
        HostConfig: { RestartPolicy: { MaximumRetryCount: count } },
      }),
      `400 invalid restart policy: maximum retry count can only be used with 'on-failure'${words}`,
    );
  }
});

test('a single word names a platform only if it is a known system or architecture', async () => {
  for (const path of [
    `/images/create?fromImage=${image}&platform=nintendo64`,
    '/containers/create?platform=nintendo64',
  ])
    assert.equal(
      await refused('POST', path, { Image: 'not-there' }),
      '400 "nintendo64": unknown operating system or architecture: invalid argument',
    );
  assert.equal(
    await refused('POST', `/images/create?fromImage=${image}&platform=a/b/c/d`),
    '400 "a/b/c/d": cannot parse platform specifier: invalid argument',
  );
});

test('sizes of terminals that are no numbers or too large are told apart', async () => {
  const { Id } = await create({});
  for (const [query, message] of [
    ['h=x&w=1', 'invalid resize height "x": invalid syntax'],
    ['h=4294967296&w=1', 'invalid resize height "4294967296": value out of range'],
    ['h=1&w=-1', 'invalid resize width "-1": value out of range'],
    ['h=1', 'invalid resize width "": invalid syntax'],
  ])
    assert.equal(await refused('POST', `/containers/${Id}/resize?${query}`), `400 ${message}`);
  await remove(Id);
});

test('an exec that was never started goes with the run of its container, one that has ended stays', async () => {
  const { Id } = await create({});
  const exec = async (cmd: string): Promise<string> =>
    (
      await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${Id}/exec`, {
        json: { Cmd: [cmd, '9999'] },
      })
    ).Id;
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`);
  const [waiting, running] = [await exec('true'), await exec('sleep')];
  await callJson(engine.socketPath, 'POST', `/exec/${running}/start`, { json: { Detach: true } });
  assert.equal((await get<{ ExecIDs: string[] }>(`/containers/${Id}/json`)).ExecIDs.length, 2);
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/kill`);
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/wait`);
  assert.equal((await get<{ ExecIDs: string[] | null }>(`/containers/${Id}/json`)).ExecIDs, null);
  assert.equal(await refused('GET', `/exec/${waiting}/json`), `404 No such exec instance: ${waiting}`);
  assert.equal((await get<{ ID: string }>(`/exec/${running}/json`)).ID, running);
  await remove(Id);
});

test('lists tell where a container is, not the names that it has there', async () => {
  await engineOk(engine, ['network', 'create', 'listed']);
  const { Id } = await create(
    { NetworkMode: 'listed' },
    { NetworkingConfig: { EndpointsConfig: { listed: { Aliases: ['site'] } } } },
  );
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`);
  const [item] = await get<{ NetworkSettings: { Networks: { listed: Json } } }[]>('/v1.51/containers/json');
  const listed = item?.NetworkSettings.Networks.listed;
  assert.deepEqual([listed?.['Aliases'], listed?.['DNSNames'], listed?.['Links']], [null, null, null]);
  assert.match(String(listed?.['IPAddress']), /^\d+\./);
  const { NetworkSettings } = await get<{ NetworkSettings: { Networks: { listed: Json } } }>(
    `/v1.51/containers/${Id}/json`,
  );
  assert.deepEqual(NetworkSettings.Networks.listed['Aliases'], ['site']);
  await remove(Id);
  await engineOk(engine, ['network', 'rm', 'listed']);
});

test('names of a container are listed in their order, also those that links give', async () => {
  const { Id: target } = await create({ NetworkMode: 'bridge' }, {}, '?name=target');
  await callJson(engine.socketPath, 'POST', `/containers/${target}/start`);
  const { Id } = await create({ NetworkMode: 'bridge', Links: ['target:alias'] }, {}, '?name=linking');
  const items = await get<{ Id: string; Names: string[] }[]>('/containers/json?all=1');
  assert.deepEqual(items.find((one) => one.Id === target)?.Names, ['/linking/alias', '/target']);
  await remove(Id);
  await remove(target);
});

test('a commit without a configuration goes on from that of the container', async () => {
  const { Id } = await create({}, { Env: ['PATH=/bin:/usr/bin'] });
  const changes = encodeURIComponent('ENV PATH=/x:$PATH');
  // dockerode sends its query in the body too.
  for (const json of [undefined, {}, { container: Id, repo: 'views/made', comment: 'as in the query' }]) {
    await callJson(
      engine.socketPath,
      'POST',
      `/commit?container=${Id}&repo=views/made&changes=${changes}`,
      json === undefined ? {} : { json },
    );
    const { Config } = await get<{ Config: { Env: string[] } }>('/images/views/made/json');
    assert.deepEqual(Config.Env, ['PATH=/x:/bin:/usr/bin']);
    await engineOk(engine, ['rmi', 'views/made']);
  }
  await remove(Id);
});

test('a mount of an image is said to be new, and a health check of an old client has no newer member', async () => {
  const { Id, Warnings } = await create({ Mounts: [{ Type: 'image', Source: image, Target: '/image' }] });
  assert.deepEqual(Warnings, ['Image mount is an experimental feature']);
  await remove(Id);
  const Healthcheck = { Test: ['CMD', 'true'], Interval: 1_000_000_000, StartInterval: 1_000_000_000 };
  const old = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/v1.43/containers/create', {
    json: { Image: image, Healthcheck },
  });
  const { Config } = await get<{ Config: { Healthcheck: Json } }>(`/containers/${old.Id}/json`);
  assert.deepEqual(Object.keys(Config.Healthcheck).sort(), ['Interval', 'Test']);
  await remove(old.Id);
});

/** Prints the first option of the mounts of control groups, and of `/sys`. */
const WRITABLE =
  "grep ' cgroup' /proc/mounts | awk '{print $4}' | cut -d, -f1 | sort -u; " +
  "grep ' /sys ' /proc/mounts | awk '{print $4}' | cut -d, -f1";

test('who may write to control groups and to /sys', async () => {
  for (const [options, groups, sys] of [
    [[], 'ro', 'ro'],
    [['--security-opt', 'writable-cgroups=true'], 'rw', 'ro'],
    [['--security-opt', 'writable-cgroups=true', '--read-only'], 'rw', 'ro'],
    [['--privileged'], 'rw', 'rw'],
    [['--privileged', '--read-only'], 'rw', 'rw'],
    [['--privileged', '--security-opt', 'writable-cgroups=false'], 'ro', 'rw'],
  ] as const)
    assert.equal(
      await engineOk(engine, ['run', '--rm', '--network', 'none', ...options, image, 'sh', '-c', WRITABLE]),
      `${groups}\n${sys}`,
      options.join(' '),
    );
  assert.match(
    await refused('POST', '/containers/create', { Image: image, HostConfig: { SecurityOpt: ['writable-cgroups=x'] } }),
    /^[45]00 invalid --security-opt 2: "writable-cgroups=x"$/,
  );
});

test('a container with rights of the host has no label of its own, whatever other options it has', async () => {
  for (const [given, shown] of [
    [['no-new-privileges'], ['no-new-privileges', 'label=disable']],
    [['label=disable'], ['label=disable']],
    [undefined, ['label=disable']],
  ] as const) {
    const { Id } = await create({ Privileged: true, ...(given === undefined ? {} : { SecurityOpt: given }) });
    const { HostConfig } = await get<{ HostConfig: { SecurityOpt: string[] } }>(`/containers/${Id}/json`);
    assert.deepEqual(HostConfig.SecurityOpt, shown);
    await remove(Id);
  }
});

test('a bind of the data root is given back what is unmounted there, and cannot be private', async () => {
  const bind = (source: string): Json => ({ Image: image, HostConfig: { Binds: [`${engine.dir}:/data${source}`] } });
  assert.match(
    await refused('POST', '/containers/create', bind(':rprivate')),
    /^400 .*must use either propagation mode "rslave" or "rshared" when mount source is within the daemon root/,
  );
  const { Id } = await create({ Binds: [`${engine.dir}:/data`] });
  const { Mounts } = await get<{ Mounts: { Propagation: string }[] }>(`/containers/${Id}/json`);
  assert.deepEqual(
    Mounts.map(({ Propagation }) => Propagation),
    ['rslave'],
  );
  // Where the source gives no events, the container starts all the same.
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`);
  await remove(Id);
});

test('a container that is started again has the address that it had', async () => {
  const start = (id: string): Promise<unknown> => callJson(engine.socketPath, 'POST', `/containers/${id}/start`);
  const addressOf = async (id: string): Promise<string> =>
    (await get<{ NetworkSettings: { Networks: { bridge: { IPAddress: string } } } }>(`/containers/${id}/json`))
      .NetworkSettings.Networks.bridge.IPAddress;
  const made = [await create({ NetworkMode: 'bridge' }), await create({ NetworkMode: 'bridge' })].map(({ Id }) => Id);
  for (const id of made) await start(id);
  const before = await Promise.all(made.map(addressOf));
  for (const id of made) await callJson(engine.socketPath, 'POST', `/containers/${id}/restart?t=0`);
  assert.deepEqual(await Promise.all(made.map(addressOf)), before);
  for (const id of made) await remove(id);
});
