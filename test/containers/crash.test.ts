/** The daemon is killed while it works; started again, it knows what is true and nothing is lost. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { containerdPaths } from '../../src/supervisor/containerd-config.js';
import { GrpcConnection, type UnaryClient } from '../../src/supervisor/grpc-connection.js';
import { Containers } from '../../src/supervisor/proto/gen/containers_pb.js';
import { Cleanup } from '../support/cleanup.js';
import type { SeededRegistry } from '../support/busybox-image.js';
import { removeContainers } from '../support/container-removal.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import { buildImage, buildLayer, busyboxEntries, generatedLayer } from '../support/image-builder.js';
import { startLyingRegistry } from '../support/lying-registry.js';
import { pull } from '../support/pulls.js';
import { shimsOf } from '../support/shim-of.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;

interface Inspection {
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly Pid: number;
    readonly ExitCode: number;
    readonly StartedAt: string;
    readonly FinishedAt: string;
  };
  readonly NetworkSettings: { readonly Networks: unknown };
}

type Named = Readonly<Record<'endpointId' | 'interfaceName' | 'networkId' | 'networkName', string>>;

before(async () => {
  ({ engine, registry } = await startEngineWithRegistry(cleanup, engined()));
});

after(() => cleanup.run());

// One failure must not make the next tests fail.
afterEach(() => removeContainers(engine));

function ok(...args: string[]): Promise<string> {
  return engineOk(engine, args);
}

async function stateOf(name: string): Promise<Inspection['State']> {
  return (await callJson<Inspection>(engine.socketPath, 'GET', `/containers/${name}/json`)).State;
}

async function startOf(name: string): Promise<unknown> {
  const { State, NetworkSettings } = await callJson<Inspection>(engine.socketPath, 'GET', `/containers/${name}/json`);
  return { state: State.Status, startedAt: State.StartedAt, networks: NetworkSettings.Networks };
}

/** Calls the containerd of the daemon. */
async function supervised(work: (containers: UnaryClient<typeof Containers>) => Promise<unknown>): Promise<void> {
  const connection = new GrpcConnection(containerdPaths(join(engine.dir, 'exec'), engine.dir).socket, 'engine');
  try {
    await work(connection.unary(Containers));
  } finally {
    connection.close();
  }
}

async function crashAndRestart(): Promise<void> {
  assert.equal(await engine.stop('SIGKILL'), 'SIGKILL');
  await engine.start();
}

test('a running container lives on, its state is true and its log is whole', async () => {
  await ok(
    'run',
    '-d',
    '--name',
    'counter',
    registry.reference,
    'sh',
    '-c',
    'i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done',
  );
  await waitFor('some output', async () => (await ok('logs', 'counter')).split('\n').length > 20);
  const before = await stateOf('counter');
  // Its start survives the kill, though it is not durable yet.
  await ok('run', '-d', '--name', 'young', registry.reference, 'sleep', '100');
  const young = await startOf('young');
  // A daemon that was killed before containerd had forgotten this task left it.
  await supervised(async (containers) => {
    await containers.create({ container: { id: 'forgotten', runtime: { name: 'io.containerd.runc.v2' }, spec: {} } });
  });
  await crashAndRestart();

  assert.deepEqual(await startOf('young'), young);
  await supervised((containers) =>
    waitFor('containerd to forget it', async () => {
      const listed = await containers.list({});
      return listed.containers.length === 2 && listed.containers.every(({ id }) => id.length === 64);
    }),
  );
  const state = await stateOf('counter');
  assert.deepEqual(
    { status: state.Status, running: state.Running, pid: state.Pid },
    { status: 'running', running: true, pid: before.Pid },
  );
  assert.ok(existsSync(`/proc/${state.Pid}`));
  const count = async (): Promise<number> => (await ok('logs', 'counter')).split('\n').length;
  const soFar = await count();
  await waitFor('more output after the restart', async () => (await count()) > soFar + 20);
  const numbers = (await ok('logs', 'counter')).split('\n').map(Number);
  assert.deepEqual(
    numbers,
    numbers.map((_, index) => index),
    'no line is lost or doubled',
  );

  assert.equal(await ok('stop', '-t', '0', 'counter'), 'counter');
  assert.equal((await stateOf('counter')).ExitCode, 137);
  assert.equal(existsSync(`/proc/${state.Pid}`), false);
});

test('a container whose shim answers late lives on', async () => {
  const id = await ok('run', '-d', '--name', 'slow', registry.reference, 'sleep', '1000');
  const { Pid } = await stateOf('slow');
  const [shim] = shimsOf(engine.dir, id);
  assert.ok(shim);
  await engine.stop('SIGKILL');
  process.kill(shim.pid, 'SIGSTOP');
  const length = engine.log.length;
  const started = engine.start();
  try {
    // The words of containerd about a shim that did not answer in time.
    await waitFor('containerd to know no state', () => engine.log.slice(length).includes('unknown status'), 60_000);
  } finally {
    process.kill(shim.pid, 'SIGCONT');
  }
  await started;
  const state = await stateOf('slow');
  assert.deepEqual({ status: state.Status, pid: state.Pid }, { status: 'running', pid: Pid });
  assert.equal(await ok('exec', 'slow', 'echo', 'alive'), 'alive');
});

test('a container that ended while the daemon was away has its exit code', async () => {
  await ok('run', '-d', '--name', 'quitter', registry.reference, 'sh', '-c', 'echo first; sleep 1; exit 6');
  await waitFor('its output', async () => (await ok('logs', 'quitter')) === 'first');
  const { Pid } = await stateOf('quitter');
  await engine.stop('SIGKILL');
  await waitFor('the end of the process', () => !existsSync(`/proc/${Pid}`));
  await engine.start();
  const { Status, ExitCode } = await stateOf('quitter');
  assert.deepEqual({ Status, ExitCode }, { Status: 'exited', ExitCode: 6 });
  assert.equal(await ok('logs', 'quitter'), 'first');
});

test('created and ended containers, names and images are still there', async () => {
  await ok('create', '--name', 'waiting', registry.reference, 'echo', 'later');
  await ok('run', '--name', 'ended', registry.reference, 'sh', '-c', 'echo said; exit 3').catch(() => undefined);
  await ok('tag', registry.reference, 'local/kept:1');
  await crashAndRestart();
  assert.equal(await ok('ps', '-a', '--format', '{{.Names}}'), 'ended\nwaiting');
  assert.equal((await stateOf('ended')).ExitCode, 3);
  assert.equal(await ok('logs', 'ended'), 'said');
  assert.equal(await ok('start', '-a', 'waiting'), 'later');
  assert.equal(await ok('inspect', '--format', '{{.Id}}', 'local/kept:1'), registry.image.id);
  await ok('rmi', 'local/kept:1');
});

test('what was made or removed and not told of is told by the next daemon, once', async () => {
  await ok('volume', 'create', 'told');
  const network = await ok('network', 'create', 'gone');
  const records = join(engine.dir, 'data', 'network', 'predefined.json');
  await ok('network', 'rm', 'gone');
  const changes = async (type: string): Promise<string[]> => {
    const filters = encodeURIComponent(JSON.stringify({ type: [type], event: ['create', 'destroy'] }));
    const reply = await open(engine.socketPath, 'GET', `/events?since=1&until=${Date.now() / 1000}&filters=${filters}`);
    const told: string[] = [];
    for await (const { Action, Actor } of jsonLines<{ Action: string; Actor: { ID: string } }>(reply.message))
      told.push(`${Action} ${Actor.ID}`);
    return told;
  };
  await waitFor('the removal to be told', async () => (await changes('network')).includes(`destroy ${network}`));
  await engine.stop('SIGKILL');
  // As it is there when the daemon is killed between the record and the event.
  const [told, untold, removed] = ['told', 'untold', '.removed-it'].map((name) =>
    join(engine.dir, 'data', 'volumes', name),
  );
  cpSync(told ?? '', untold ?? '', { recursive: true });
  const record = join(untold ?? '', 'volume.json');
  const text = readFileSync(record, 'utf8');
  writeFileSync(record, text.replaceAll('"told"', '"untold"').replaceAll('/told/', '/untold/'));
  cpSync(told ?? '', removed ?? '', { recursive: true });
  writeFileSync(join(removed ?? '', 'volume.json'), text.replaceAll('"told"', '"lost"'));
  writeFileSync(records, readFileSync(records, 'utf8').replace(network, '1'.repeat(64)));
  await engine.start();
  await crashAndRestart();
  assert.deepEqual(await changes('volume'), ['create told', 'destroy lost', 'create untold']);
  assert.deepEqual(
    (await changes('network')).filter((change) => !change.startsWith('create')),
    [`destroy ${network}`, `destroy ${'1'.repeat(64)}`],
  );
  assert.ok(!existsSync(removed ?? ''));
  await ok('volume', 'rm', 'told', 'untold');
});

test('networks that a container has joined or left untold are told by the next daemon, once', async () => {
  const network = await ok('network', 'create', 'joined');
  const container = await ok('run', '-d', '--name', 'moves', registry.reference, 'sleep', '600');
  const told = async (): Promise<string[]> => {
    const filters = encodeURIComponent(JSON.stringify({ type: ['network'], network: [network] }));
    const reply = await open(engine.socketPath, 'GET', `/events?since=1&until=${Date.now() / 1000}&filters=${filters}`);
    const actions: string[] = [];
    for await (const { Action } of jsonLines<{ Action: string }>(reply.message))
      if (Action.includes('connect')) actions.push(Action);
    return actions;
  };
  const events = join(engine.dir, 'data', 'events');
  const record = join(engine.dir, 'data', 'containers', container, 'container.json');
  /** As the disk is when the daemon is killed before it tells of its last change. */
  const killUntold = async (): Promise<void> => {
    const before = (await told()).length;
    await engine.stop('SIGKILL');
    const [log = ''] = readdirSync(events).toSorted().slice(-1);
    const lines = readFileSync(join(events, log), 'utf8').split('\n');
    const at = lines.findLastIndex((line) => line.includes('connect') && line.includes(network));
    writeFileSync(join(events, log), `${lines.slice(0, at).join('\n')}\n`);
    await engine.start();
    await crashAndRestart();
    assert.equal((await told()).length, before);
  };
  await ok('network', 'connect', 'joined', 'moves');
  await waitFor('the join to be told', async () => (await told()).length === 1);
  await killUntold();
  assert.deepEqual(await told(), ['connect']);
  const joined = readFileSync(record);
  await ok('network', 'disconnect', 'joined', 'moves');
  await waitFor('that it has left to be told', async () => (await told()).length === 2);
  await engine.stop('SIGKILL');
  // The record of a container that is just leaving, as the daemon writes it.
  type Networks = Record<string, { request: object; endpoint: Named }>;
  const { version, value } = JSON.parse(joined.toString()) as { version: number; value: { networks: Networks } };
  const { request, endpoint } = value.networks['joined'] ?? assert.fail('it has not joined');
  const { endpointId, interfaceName, networkId, networkName } = endpoint;
  const leaving = { since: new Date().toISOString(), networkId, networkName };
  const networks = { ...value.networks, joined: { request, pending: { endpointId, interfaceName }, leaving } };
  writeFileSync(record, JSON.stringify({ version, value: { ...value, networks } }));
  await engine.start();
  await crashAndRestart();
  assert.deepEqual(await told(), ['connect', 'disconnect', 'disconnect']);
  await ok('rm', '-f', 'moves');
  await ok('network', 'rm', 'joined');
});

test('a removal in whose middle the daemon is killed is ended by the next one, with anonymous volumes', async () => {
  const Volumes = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`/v${index}`, {}]));
  const json = { Image: registry.reference, Volumes };
  const volumes = (): string[] =>
    readdirSync(join(engine.dir, 'data', 'volumes')).filter((name) => /^\w{64}$/.test(name));
  // The kill may come when all is done, on a machine that is busy with something else.
  for (let left = 0; left === 0;) {
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
    const watcher = watch(join(engine.dir, 'data', 'containers'));
    const removal = call(engine.socketPath, 'DELETE', `/containers/${Id}?v=1`).catch(() => undefined);
    await once(watcher, 'change');
    watcher.close();
    await engine.stop('SIGKILL');
    await removal;
    left = volumes().length;
    await engine.start();
    assert.deepEqual(await callJson(engine.socketPath, 'GET', '/containers/json?all=1'), []);
    await waitFor('the volumes to be gone', () => volumes().length === 0);
  }
});

test('what the runtime kept of a start that was cut short is no obstacle to the next one', async () => {
  const id = await ok('create', '--name', 'begun', registry.reference, 'true');
  await engine.stop('SIGKILL');
  // As runc leaves it when it is killed early.
  mkdirSync(join(engine.dir, 'exec', 'runtime-runc', 'engine', id), { recursive: true });
  await engine.start();
  assert.equal(await ok('start', '-a', 'begun'), '');
});

test('the exit of a container that removed itself can be asked for, also after a crash', async () => {
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: registry.reference, Cmd: ['sh', '-c', 'exit 11'], HostConfig: { AutoRemove: true } },
  });
  const wait = async (condition: string): Promise<unknown> =>
    callJson(engine.socketPath, 'POST', `/containers/${Id}/wait?condition=${condition}`);
  const removed = wait('removed');
  await ok('start', Id);
  assert.deepEqual(await removed, { StatusCode: 11 });
  assert.deepEqual(await wait('next-exit'), { StatusCode: 11 });
  await crashAndRestart();
  for (const condition of ['not-running', 'next-exit', 'removed'])
    assert.deepEqual(await wait(condition), { StatusCode: 11 });
});

test('a pull that was half done can be repeated and completes', async () => {
  const image = buildImage({
    layers: [buildLayer(busyboxEntries()), generatedLayer({ root: 'srv', bytes: 8_000_000, files: 100, seed: 3 })],
  });
  const slow = image.layers[1];
  assert.ok(slow);
  let isSlow = true;
  const lying = await startLyingRegistry(image, ({ path }, response) => {
    if (!isSlow || !path.endsWith(slow.digest)) return false;
    // Half of it, and then nothing.
    response.writeHead(200, { 'Content-Length': slow.blob.length });
    response.write(slow.blob.subarray(0, slow.blob.length / 2));
    return true;
  });
  try {
    const reference = `${lying.host}/half/done:1`;
    const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${encodeURIComponent(reference)}`);
    let text = '';
    reply.message.on('data', (chunk: Buffer) => (text += chunk.toString()));
    reply.message.on('error', () => undefined);
    await waitFor('a part of the layer', () => new RegExp(`"Downloading".*${slow.digest.slice(7, 19)}`).test(text));
    await engine.stop('SIGKILL');
    isSlow = false;
    await engine.start();
    const images = await callJson<{ RepoTags: string[] }[]>(engine.socketPath, 'GET', '/images/json');
    assert.deepEqual(
      images.flatMap(({ RepoTags }) => RepoTags),
      [registry.reference],
    );
    const again = await pull(engine, reference);
    assert.equal(again.messages.at(-1)?.status, `Status: Downloaded newer image for ${reference}`, again.error);
    assert.equal(await ok('run', '--rm', reference, 'sh', '-c', 'ls /srv/d0 | wc -l'), '100');
    await ok('rmi', reference);
  } finally {
    await lying.stop();
  }
});

test('what was being written when the daemon was killed is removed by the next one', async () => {
  const id = await ok('create', registry.reference, 'true');
  await ok('volume', 'create', 'torn');
  await engine.stop('SIGKILL');
  const records = ['data/engine-id.json', 'data/network/predefined.json', `data/containers/${id}/container.json`];
  const torn = [...records, 'data/volumes/torn/volume.json'].map((path) =>
    join(engine.dir, `${path}.tmp-0123456789ab`),
  );
  for (const path of torn) writeFileSync(path, '{');
  await engine.start();
  await waitFor('them to go', () => !torn.some((path) => existsSync(path)));
  await ok('volume', 'rm', 'torn');
});

test('a container that was paused for a commit when the daemon was killed goes on', async () => {
  const [paused, still] = await Promise.all(
    ['for-commit', 'by-client'].map((name) => ok('run', '-d', '--name', name, registry.reference, 'sleep', '1000')),
  );
  await ok('pause', 'for-commit', 'by-client');
  const notes = join(engine.dir, 'exec', 'commits');
  await ok('commit', 'by-client', 'committed');
  assert.deepEqual(existsSync(notes) ? readdirSync(notes) : [], []);
  await engine.stop('SIGKILL');
  // As it is there when the daemon is killed in the middle of a commit.
  mkdirSync(notes, { recursive: true });
  writeFileSync(join(notes, `${paused}.0`), '');
  await engine.start();
  await waitFor('it to go on', async () => (await stateOf(paused ?? '')).Status === 'running');
  assert.equal((await stateOf(still ?? '')).Status, 'paused');
  await waitFor('the note to go', () => readdirSync(notes).length === 0);
  await ok('unpause', 'by-client');
  await ok('commit', 'for-commit', 'committed');
  assert.deepEqual(readdirSync(notes), []);
  await ok('rmi', 'committed');
});
