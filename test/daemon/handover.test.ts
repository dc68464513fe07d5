/**
 * `engined upgrade`: a running daemon hands over to a successor without a service manager, and nobody is refused. A
 * successor that fails leaves the old one at work. UPGRADES_COUNT=50 UPGRADE_PORTS=100 UPGRADE_REQUESTS=200 is the long
 * run: so many upgrades, published ports that are probed in turn, and requests in a second.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { DescriptorKeeper } from '../../src/sys/process/descriptor-keeper.js';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import { dockerOk } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import type { Engine, EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { freePort } from '../support/free-port.js';
import { callJson, jsonLines, open } from '../support/http.js';
import { probe, repeat, requests } from '../support/steady-load.js';
import { daemonPid as pidOf, endDaemon } from '../support/successor.js';
import { assertNoneMissed, COUNTER, startUpgradeLoad, WEB } from '../support/upgrade-load.js';
import { waitFor } from '../support/wait.js';

const UPGRADES = Number(process.env['UPGRADES_COUNT'] ?? 2);
const PORTS = Number(process.env['UPGRADE_PORTS'] ?? 3);
const REQUESTS = Number(process.env['UPGRADE_REQUESTS'] ?? 100);
const PROBE_MS = PORTS > 3 ? 10 : 100;
const cleanup = new Cleanup();
const dir = mkdtempSync(join(tmpdir(), 'handover-'));
let kind: EngineKind;
let engine: Engine;
let image: string;
let tcp: number;
/** The first one of `web`. */
let port: number;

before(async () => {
  cleanup.add(async () => rmSync(dir, { recursive: true }));
  tcp = await freePort();
  kind = engined({ args: ['--host', `tcp://127.0.0.1:${tcp}`, '--tls=false'] });
  ({ engine, image } = await startEngineWithImage(cleanup, kind));
  // The process that the test has started is another one by now.
  cleanup.add(() => endDaemon(engine));
  cleanup.add(() => removeContainers(engine));
});
after(() => cleanup.run());

const daemonPid = (): number => pidOf(engine);

interface Outcome {
  readonly code: number | string | null | undefined;
  readonly output: string;
}

/** Runs `engined upgrade` for the daemon of this file. */
function upgrade(): Promise<Outcome> {
  const [own = '', ...args] = kind.command(engine.dir, engine.socketPath);
  return new Promise((resolve) => {
    execFile(own, ['upgrade', ...args], (error, stdout, stderr) =>
      resolve({
        code: error === null ? 0 : error.code,
        output: stdout + stderr,
      }),
    );
  });
}

/** Gives the order as `engined upgrade` does, but names another program. Returns the answer. */
async function order(program: string): Promise<string> {
  const socket = connect(join(engine.dir, 'exec', 'upgrade.sock'));
  socket.write(`${JSON.stringify({ program })}\n`);
  return text(socket);
}

test('requests, ports, containers and their output go on over upgrades', async (t) => {
  // A free port may come again, as nobody has taken it yet.
  const free = new Set<number>();
  while (free.size < PORTS) free.add(await freePort());
  const ports = [...free];
  [port = 0] = ports;
  const published = ports.flatMap((port) => ['-p', `127.0.0.1:${port}:80`]);
  await engineOk(engine, ['run', '-d', '--name', 'web', ...published, image, 'sh', '-c', WEB]);
  await engineOk(engine, ['run', '-d', '-t', '--name', 'counter', image, 'sh', '-c', COUNTER]);
  const pids = await engineOk(engine, ['inspect', '-f', '{{.State.Pid}}', 'web', 'counter']);
  await waitFor('the server in the container', () =>
    Promise.all(ports.map((port) => probe('127.0.0.1', port, 'served'))).then(
      () => true,
      () => false,
    ),
  );
  const load = startUpgradeLoad({
    socketPath: engine.socketPath,
    ports,
    probeMs: PROBE_MS,
    requestsPerSecond: REQUESTS,
    volumeMs: 200,
    createVolume,
    more: { 'requests over tcp': repeat(20, ping) },
  });
  t.after(async () => {
    await load.abandon();
    await engineOk(engine, ['rm', '-f', 'counter']);
  });
  const printed = (command: string): Promise<string> =>
    engineOk(engine, ['exec', 'web', 'sh', '-c', `${command} > /proc/1/fd/1`]);
  await printed('printf begin');
  for (let round = 0; round < UPGRADES; round++) {
    const before = daemonPid();
    const { code, output } = await upgrade();
    assert.equal(code, 0, output);
    assert.notEqual(daemonPid(), before);
    await waitFor('the predecessor to end', () => !existsSync(`/proc/${before}/exe`));
  }
  assert.equal(await engineOk(engine, ['inspect', '-f', '{{.State.Pid}}', 'web', 'counter']), pids);
  await printed('echo ning');
  await waitFor('a line that was begun before', async () =>
    /^\S+ beginning\n?$/.test(await engineOk(engine, ['logs', '-t', 'web'])),
  );
  await load.end({
    stop: () => engineOk(engine, ['exec', 'counter', 'touch', '/stop']),
    logs: () => engineOk(engine, ['logs', 'counter']),
  });
});

/** The CLI asks for _ping first, on the same connection. As its start takes long, it makes every fifth volume. */
async function createVolume(name: string): Promise<void> {
  if (/[05]$/.test(name)) await dockerOk(engine, ['volume', 'create', name]);
  else await callJson(engine.socketPath, 'POST', '/volumes/create', { json: { Name: name } }, 201);
}

async function ping(): Promise<void> {
  const { status } = await fetch(`http://127.0.0.1:${tcp}/_ping`, { headers: { connection: 'close' } });
  assert.equal(status, 200);
}

test('connections to a published port go on over an upgrade: one whose answer takes time, an idle one', async () => {
  const idle = connect(port, '127.0.0.1');
  await once(idle, 'connect');
  const answer = probe('127.0.0.1', port, 'served', '/cgi-bin/slow?2');
  await waitFor('it to be with the server', async () =>
    (await engineOk(engine, ['exec', 'web', 'ls', '/slow'])).includes('2'),
  );
  assert.equal((await upgrade()).code, 0);
  await answer;
  idle.write('GET / HTTP/1.0\r\n\r\n');
  assert.match(await text(idle), /served/);
});

test('events are whole over an upgrade, with the cursor of the last one that was read', async () => {
  const filters = encodeURIComponent(JSON.stringify({ type: ['volume'] }));
  const read = async (since: string, last: string): Promise<VolumeEvent[]> => {
    const stream = await open(engine.socketPath, 'GET', `/events?since=${since}&filters=${filters}`);
    const events: VolumeEvent[] = [];
    for await (const event of jsonLines<VolumeEvent>(stream.message)) {
      events.push(event);
      if (event.Actor.ID === last) break;
    }
    stream.close();
    return events;
  };
  const start = String(Date.now() / 1000 - 1);
  await engineOk(engine, ['volume', 'create', 'one']);
  const cursor = (await read(start, 'one')).at(-1)?.cursor ?? assert.fail('no cursor');
  const upgraded = upgrade();
  await engineOk(engine, ['volume', 'create', 'two']);
  assert.equal((await upgraded).code, 0);
  await engineOk(engine, ['volume', 'create', 'three']);
  const rest = await read(encodeURIComponent(cursor), 'three');
  assert.deepEqual(
    rest.map(({ Actor }) => Actor.ID),
    ['two', 'three'],
  );
});

interface VolumeEvent {
  readonly cursor: string;
  readonly Actor: { readonly ID: string };
}

test('a successor that cannot start, dies half way or hangs leaves the daemon at work', async () => {
  const pid = daemonPid();
  const [own = ''] = kind.command(engine.dir, engine.socketPath);
  const script = (name: string, text: string): string => {
    const path = join(dir, name);
    writeFileSync(path, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    return path;
  };
  assert.match(await order('relative'), /names no program/);
  assert.match(await order(join(dir, 'absent')), /cannot start: this one goes on/);
  assert.match(await order(script('ends', 'exit 3')), /cannot start: this one goes on/);
  // The order is taken back while it hangs.
  const impatient = connect(join(engine.dir, 'exec', 'upgrade.sock'));
  impatient.write(`${JSON.stringify({ program: script('hangs', `echo > ${dir}/hanging; exec sleep 1000`) })}\n`);
  await waitFor('the successor to hang', () => existsSync(join(dir, 'hanging')));
  assert.match(await order(join(dir, 'absent')), /another successor is being started/);
  impatient.destroy();
  await waitFor('it to be given up', async () => !/another/.test(await order(join(dir, 'absent'))));
  assert.equal(daemonPid(), pid);
  const load = requests(engine.socketPath, '/_ping', 50);
  // It takes everything over, and is killed before it serves.
  const dying = `( while ! grep -q $$ ${engine.dir}/engine.pid; do sleep 0.01; done; kill -9 $$ ) & exec ${own} "$@"`;
  assert.match(await order(script('dies', dying)), /ended before it served: this one goes on/);
  await waitFor('the daemon to have its pidfile again', () => readPid() === pid);
  await engineOk(engine, ['exec', 'web', 'true']);
  assertNoneMissed('requests', await load.end());
  assert.equal((await upgrade()).code, 0);
  assert.notEqual(daemonPid(), pid);
});

function readPid(): number {
  try {
    return daemonPid();
  } catch {
    return 0;
  }
}

test("what is kept for containers is the daemon's again when a successor dies that had taken it over", async () => {
  const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', 'web']);
  const [inits, outputs] = [join(engine.dir, 'exec/supervisor/inits'), join(engine.dir, 'exec/keepers')];
  const [own = ''] = kind.command(engine.dir, engine.socketPath);
  const path = join(dir, 'dies-late');
  for (let answer = 'done'; answer.includes('done');) {
    const [keeper = assert.fail('nothing is kept')] = readdirSync(inits);
    // The earlier keeper ends when the successor has everything. A successor that serves before it is killed has been
    // the daemon for a moment: one is started in its place, and another successor is tried.
    const isThere = `while [ -e ${join(inits, keeper)} ]; do :; done; kill -9 $$`;
    writeFileSync(path, `#!/bin/sh\n( ${isThere} ) & exec ${own} "$@"\n`, { mode: 0o755 });
    answer = await order(path);
    if (answer.includes('done')) {
      const pid = daemonPid();
      await waitFor('the successor to be killed', () => !existsSync(`/proc/${pid}/exe`));
      await engine.start();
    }
  }
  await waitFor('the daemon to have its pidfile again', () => readPid() !== 0);
  await engineOk(engine, ['exec', 'web', 'true']);
  assert.deepEqual(await keptIn(inits), [id]);
  assert.deepEqual(await keptIn(outputs), [`io/${id}`]);
});

/** Returns the names of what a keeper in this directory has for the next daemon. */
async function keptIn(directory: string): Promise<string[]> {
  const kept = await new DescriptorKeeper(directory).earlier();
  for (const fd of [...kept.values()].flat()) closeSync(fd);
  return [...kept.keys()];
}

test('only root may give the order', () => {
  assert.equal((statSync(join(engine.dir, 'exec', 'upgrade.sock')).mode & 0o777).toString(8), '600');
});
