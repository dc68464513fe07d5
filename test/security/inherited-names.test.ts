/** Names that every JavaScript object inherits are names like others, wherever clients may choose them. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, type CallOptions } from '../support/http.js';

const INHERITED = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf'];
/**
 * The object literal `{ __proto__: … }` would set a prototype, so members are made from pairs, as a JSON body has them.
 */
const allAs = <T>(value: T): Record<string, T> => Object.fromEntries(INHERITED.map((name) => [name, value]));

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
});
after(() => cleanup.run());

afterEach(async () => {
  await removeContainers(engine);
  await ask('POST', `/networks/prune`);
  await ask('POST', `/volumes/prune?filters={"all":["true"]}`);
});

function ask<T>(method: string, path: string, options: CallOptions = {}): Promise<T> {
  return callJson<T>(engine.socketPath, method, path.replaceAll(/[{}"[\]]/g, encodeURIComponent), options);
}

async function refused(status: number, message: RegExp, method: string, path: string, json?: unknown): Promise<void> {
  const reply = await call(engine.socketPath, method, path, json === undefined ? {} : { json });
  assert.equal(reply.status, status, `${method} ${path} ${JSON.stringify(json)}: ${reply.text}`);
  assert.match((JSON.parse(reply.text) as { message: string }).message, message);
}

async function create(json: object, name = ''): Promise<string> {
  const { Id } = await ask<{ Id: string }>('POST', `/containers/create${name === '' ? '' : `?name=${name}`}`, {
    json: { Image: image, Cmd: ['true'], ...json },
  });
  return Id;
}

test('a filter for a label that nothing has prunes nothing and lists nothing', async () => {
  const id = await create({ Labels: { a: 'b' } });
  const made = await ask<{ Id: string }>('POST', '/networks/create', { json: { Name: 'kept' } });
  await ask('POST', '/volumes/create', { json: { Name: 'kept' } });
  for (const label of [
    ...INHERITED,
    ...INHERITED.map((name) => `${name}=`),
    'toString=function toString() { [native code] }',
  ]) {
    const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
    const all = encodeURIComponent(JSON.stringify({ label: [label], all: ['true'] }));
    assert.deepEqual(await ask('GET', `/containers/json?all=1&filters=${filters}`), [], label);
    assert.deepEqual(await ask('GET', `/images/json?filters=${filters}`), [], label);
    assert.deepEqual(await ask('GET', `/networks?filters=${filters}`), [], label);
    assert.deepEqual((await ask<{ Volumes: unknown[] }>('GET', `/volumes?filters=${filters}`)).Volumes, [], label);
    assert.deepEqual(
      await ask('POST', `/containers/prune?filters=${filters}`),
      { ContainersDeleted: null, SpaceReclaimed: 0 },
      label,
    );
    assert.deepEqual(await ask('POST', `/networks/prune?filters=${filters}`), { NetworksDeleted: null }, label);
    assert.deepEqual(
      await ask('POST', `/volumes/prune?filters=${all}`),
      { VolumesDeleted: [], SpaceReclaimed: 0 },
      label,
    );
    const prune = encodeURIComponent(JSON.stringify({ label: [label], dangling: ['false'] }));
    assert.deepEqual(
      await ask('POST', `/images/prune?filters=${prune}`),
      { ImagesDeleted: null, SpaceReclaimed: 0 },
      label,
    );
    const now = Math.floor(Date.now() / 1000) + 1;
    assert.equal(
      (await call(engine.socketPath, 'GET', `/events?since=1&until=${now - 1}&filters=${filters}`)).text,
      '',
      label,
    );
  }
  assert.equal((await ask<{ Id: string }>('GET', `/containers/${id}/json`)).Id, id);
  assert.equal((await ask<{ Id: string }>('GET', '/networks/kept')).Id, made.Id);
  assert.equal((await ask<{ Name: string }>('GET', '/volumes/kept')).Name, 'kept');
});

test('labels, annotations and variables with such names are kept and found', async () => {
  const labels = allAs('x');
  const env = INHERITED.map((name) => `${name}=x`);
  const id = await create({
    Labels: labels,
    Env: env,
    HostConfig: {
      Annotations: labels,
      LogConfig: { Type: 'json-file', Config: { labels: INHERITED.join(','), 'env-regex': '^(toS|__)' } },
    },
    Cmd: ['env'],
  });
  const shown = await ask<{ Config: { Labels: object; Env: string[] }; HostConfig: { Annotations: object } }>(
    'GET',
    `/containers/${id}/json`,
  );
  for (const [name, value] of Object.entries(labels))
    assert.deepEqual(Object.getOwnPropertyDescriptor(shown.Config.Labels, name)?.value, value, name);
  for (const [name, value] of Object.entries(labels))
    assert.deepEqual(Object.getOwnPropertyDescriptor(shown.HostConfig.Annotations, name)?.value, value, name);
  assert.deepEqual(shown.Config.Env.slice(0, env.length), env);
  for (const name of INHERITED) {
    const found = await ask<{ Id: string }[]>(
      'GET',
      `/containers/json?all=1&filters=${encodeURIComponent(JSON.stringify({ label: [name, `${name}=x`] }))}`,
    );
    assert.deepEqual(
      found.map(({ Id }) => Id),
      [id],
      name,
    );
  }
  await ask('POST', `/containers/${id}/start`);
  await ask('POST', `/containers/${id}/wait`);
  const logs = await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&details=1`);
  for (const name of INHERITED) assert.match(logs.text, new RegExp(`${name}=x[, ]`));
  for (const name of INHERITED) assert.match(logs.text, new RegExp(` ${name}=x\n`));
});

test('containers, networks and volumes with such names', async () => {
  for (const name of INHERITED.filter((inherited) => /^[a-z]/.test(inherited))) {
    const network = await ask<{ Id: string }>('POST', '/networks/create', { json: { Name: name, Labels: allAs('n') } });
    await ask('POST', '/volumes/create', { json: { Name: name, Labels: allAs('v') } });
    const id = await create(
      {
        Cmd: ['sleep', '1000'],
        HostConfig: { NetworkMode: name, Binds: [`${name}:/data`] },
        NetworkingConfig: { EndpointsConfig: { [name]: { Aliases: INHERITED } } },
      },
      name,
    );
    await ask('POST', `/containers/${name}/start`);
    const shown = await ask<{ Name: string; NetworkSettings: { Networks: Record<string, { NetworkID: string }> } }>(
      'GET',
      `/containers/${name}/json`,
    );
    assert.equal(shown.Name, `/${name}`);
    assert.deepEqual(
      Object.entries(shown.NetworkSettings.Networks).map(([key, { NetworkID }]) => [key, NetworkID]),
      [[name, network.Id]],
    );
    const volume = await ask<{ Labels: object }>('GET', `/volumes/${name}`);
    assert.deepEqual(Object.keys(volume.Labels).sort(), INHERITED.toSorted());
    await ask('POST', `/networks/${name}/disconnect`, { json: { Container: id } });
    await ask('POST', `/networks/${name}/connect`, { json: { Container: name } });
    await ask('POST', `/containers/${name}/kill`);
    await ask('DELETE', `/containers/${name}?force=1`);
    await ask('DELETE', `/networks/${name}`);
    await ask('DELETE', `/volumes/${name}`);
  }
  for (const name of ['toString', '__proto__', 'constructor']) {
    for (const path of [`/containers/${name}/json`, `/networks/${name}`, `/volumes/${name}`, `/exec/${name}/json`])
      await refused(404, /No such|not found|no such/, 'GET', path);
    const id = await create({ HostConfig: { NetworkMode: name } });
    assert.deepEqual(
      Object.keys(
        (await ask<{ NetworkSettings: { Networks: object } }>('GET', `/containers/${id}/json`)).NetworkSettings
          .Networks,
      ),
      [name],
    );
    await refused(
      404,
      new RegExp(`failed to set up container networking: network ${name} not found`),
      'POST',
      `/containers/${id}/start`,
    );
  }
});

test('images with such names and tags', async () => {
  await ask('POST', `/images/${image}/tag?repo=constructor&tag=__proto__`);
  try {
    assert.deepEqual(
      (await ask<{ RepoTags: string[] }>('GET', '/images/constructor:__proto__/json')).RepoTags.toSorted(),
      [image, 'constructor:__proto__'].toSorted(),
    );
    const archive = (await call(engine.socketPath, 'GET', '/images/constructor:__proto__/get')).body.toString('latin1');
    assert.match(archive, /\{"constructor":\{"__proto__":"[0-9a-f]{64}"\}\}/);
    await refused(404, /No such image/, 'GET', '/images/constructor:valueof/json');
    // No registry has such an address.
    await refused(
      500,
      /lookup|resolve|no such host|refused|network|unreachable/i,
      'POST',
      '/images/create?fromImage=hasOwnProperty/x&tag=1',
    );
  } finally {
    await ask('DELETE', '/images/constructor:__proto__');
  }
});

test('what no option is called is refused as any unknown one', async () => {
  for (const name of INHERITED) {
    const log = (LogConfig: object): object => ({ Image: image, HostConfig: { LogConfig } });
    await refused(
      400,
      /error looking up logging plugin/,
      'POST',
      '/containers/create',
      log({ Type: name, Config: {} }),
    );
    await refused(
      400,
      /unknown log opt/,
      'POST',
      '/containers/create',
      log({ Type: 'json-file', Config: Object.fromEntries([[name, 'x']]) }),
    );
    await refused(
      400,
      /unknown log opt/,
      'POST',
      '/containers/create',
      log({ Type: 'local', Config: Object.fromEntries([[name, 'x']]) }),
    );
    await refused(400, /invalid option/, 'POST', '/volumes/create', {
      Name: 'volume',
      DriverOpts: Object.fromEntries([[name, 'x']]),
    });
    await refused(404, /plugin "?.*"? not found|could not find plugin/, 'POST', '/networks/create', {
      Name: 'n',
      Driver: name,
    });
    await refused(400, /invalid sysctl|sysctl/, 'POST', '/containers/create', {
      Image: image,
      HostConfig: { Sysctls: Object.fromEntries([[name, '1']]) },
    });
    for (const tag of [`{{.${name}}}`, `{{${name} .Name}}`, `{{.Name | ${name}}}`]) {
      const id = await create({ HostConfig: { LogConfig: { Type: 'json-file', Config: { tag } } } });
      await refused(400, /unknown (field|function)/, 'POST', `/containers/${id}/start`);
    }
  }
  for (const name of ['constructor', 'toString'])
    await refused(404, /./, 'POST', `/containers/create?platform=linux/${name}`, { Image: image });
  for (const name of INHERITED)
    await refused(
      400,
      /invalid filter/,
      'GET',
      `/containers/json?filters=${encodeURIComponent(JSON.stringify(Object.fromEntries([[name, ['x']]])))}`,
    );
});

test('a body whose prototype is set has no members from there', async () => {
  const name = JSON.stringify(image);
  const body = `{"__proto__":{"Image":${name}},"constructor":{"prototype":{"Image":${name}}}}`;
  const headers = { 'Content-Type': 'application/json' };
  const reply = await call(engine.socketPath, 'POST', '/containers/create', { body, headers });
  assert.equal(reply.status, 400, reply.text);
  const nested = `{"Image":${name},"HostConfig":{"__proto__":{"Privileged":true}},"Labels":{"__proto__":"x"}}`;
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    body: nested,
    headers,
  });
  const shown = await ask<{ HostConfig: { Privileged: boolean }; Config: { Labels: object } }>(
    'GET',
    `/containers/${Id}/json`,
  );
  assert.equal(shown.HostConfig.Privileged, false);
  assert.equal(Object.getOwnPropertyDescriptor(shown.Config.Labels, '__proto__')?.value, 'x');
});
