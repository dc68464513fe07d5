/** The process of the daemon: what signals do to it, and what it tells about itself. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson, open } from '../support/http.js';
import { waitFor } from '../support/wait.js';

interface ActorSummary {
  readonly id: string;
  readonly state: unknown;
  readonly effects: readonly string[];
  readonly unanswered: number;
}

interface StateFile {
  readonly phase: string;
  readonly pid: number;
  readonly requests: Readonly<Record<string, readonly { readonly method: string; readonly route: string }[]>>;
  readonly actors: Readonly<Record<string, readonly ActorSummary[]>>;
  readonly queues: Readonly<Record<string, number>>;
  readonly resources: Readonly<Record<string, number>>;
  readonly descriptors: Readonly<Record<string, string>>;
  readonly heap: { readonly used_heap_size: number };
  readonly eventLoop: { readonly maxMs: number };
  readonly log: readonly string[];
}

const SECRET = 'correct-horse-battery-staple';
/** Bit of SIGUSR1 in the sets of /proc/PID/status. */
const SIGUSR1_BIT = 1n << 9n;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  const kind = engined({ env: { HTTPS_PROXY: `http://user:${SECRET}@127.0.0.1:1`, NODE_OPTIONS: '--inspect=0' } });
  ({ engine, image } = await startEngineWithImage(cleanup, kind));
});

after(() => cleanup.run());

function dumps(): string[] {
  const dir = join(engine.dir, 'exec');
  return readdirSync(dir)
    .filter((name) => name.startsWith('state-') && name.endsWith('.json'))
    .sort()
    .map((name) => join(dir, name));
}

function handlesSignal(pid: number): boolean {
  const caught = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '0';
  return (BigInt(`0x${caught}`) & SIGUSR1_BIT) !== 0n;
}

/** Addresses of TCP that a process listens on, as /proc/net/tcp has them. */
function listenedOn(pid: number): string[] {
  const fds = readdirSync(`/proc/${pid}/fd`).map((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`);
    } catch {
      return ''; // Closed meanwhile.
    }
  });
  return ['tcp', 'tcp6'].flatMap((table) =>
    readFileSync(`/proc/${pid}/net/${table}`, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[3] === '0A' && fds.includes(`socket:[${fields[9]}]`))
      .map((fields) => fields[1] ?? ''),
  );
}

async function dumpAfterSignal(): Promise<StateFile> {
  const known = new Set(dumps());
  process.kill(engine.pid, 'SIGUSR1');
  const path = await waitFor('a file with the state', () => dumps().find((name) => !known.has(name)), 60_000);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal(statSync(path).uid, 0);
  await waitFor('its path in the log', () => engine.log.includes(path), 60_000);
  const text = readFileSync(path, 'utf8');
  assert.ok(!text.includes(SECRET), 'a secret is in the file');
  return JSON.parse(text) as StateFile;
}

test('SIGUSR1 writes what the daemon is doing, and opens no debugger', async () => {
  await engineOk(engine, ['run', '-d', '--name', 'up', '--env', `PASSWORD=${SECRET}`, image, 'sleep', '1000']);
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'GET', '/containers/up/json');
  const events = await open(engine.socketPath, 'GET', '/events');
  const state = await dumpAfterSignal();
  events.close();
  assert.equal(state.phase, 'serving');
  assert.equal(state.pid, engine.pid);
  assert.deepEqual(
    state.actors['containers']?.map(({ id, unanswered }) => ({ id, unanswered })),
    [{ id: Id, unanswered: 0 }],
  );
  assert.match(JSON.stringify(state.actors['containers']?.[0]?.state), /running/);
  assert.deepEqual(Object.keys(state.actors), [
    'containers',
    'execs',
    'sessions',
    'pulls',
    'builds',
    'plugins',
    'healthChecks',
    'transfers',
    'pushes',
  ]);
  const requests = state.requests[`unix://${engine.socketPath}`];
  assert.ok(
    requests?.some(({ method, route }) => method === 'GET' && route === '/events'),
    JSON.stringify(requests),
  );
  assert.equal(state.queues['tasks'], 0);
  assert.ok((state.resources['Timeout'] ?? 0) > 0);
  assert.ok(Object.values(state.descriptors).some((target) => target.startsWith('socket:')));
  assert.ok(state.heap.used_heap_size > 0);
  assert.ok(state.eventLoop.maxMs > 0);
  assert.ok(
    state.log.some((line) => line.includes('API listens')),
    state.log.join(''),
  );
  assert.deepEqual(listenedOn(engine.pid), []);
  await engineOk(engine, ['rm', '-f', 'up']);
});

test('files of many signals do not pile up', async () => {
  const old = Array.from({ length: 12 }, (_, index) =>
    join(engine.dir, 'exec', `state-2001-01-01T00-00-${10 + index}.000Z.json`),
  );
  for (const path of old) writeFileSync(path, '{}');
  await dumpAfterSignal();
  await waitFor('the oldest to be removed', () => dumps().length === 10, 60_000);
});

test('SIGUSR1 opens no debugger while the daemon starts either', async () => {
  await engine.stop();
  const starting = engine.start();
  // From the moment on when Node itself listens to the signal; before that it would just end the process.
  await waitFor('the handler', () => handlesSignal(engine.pid), 60_000, 0);
  const listened = new Set<string>();
  const isUp = starting.then(() => true);
  let round = 0;
  // Each debugger that cannot listen takes the start some time. Without pauses that grow, a slow machine would have no
  // time for anything else.
  do {
    process.kill(engine.pid, 'SIGUSR1');
    // A debugger stays once it listens, so every twentieth look is enough: the tables are long to read.
    if (round++ % 20 === 0) for (const address of listenedOn(engine.pid)) listened.add(address);
  } while (!(await Promise.race([isUp, sleep(1 + round / 50, false)])));
  // Files that were asked for during the start may come first.
  await waitFor(
    'the state of the daemon that serves',
    async () => (await dumpAfterSignal()).phase === 'serving',
    60_000,
  );
  assert.deepEqual([...listened, ...listenedOn(engine.pid)], []);
  assert.doesNotMatch(engine.log, /Debugger listening/);
});

test('version and info have the figures of this build and this process', async () => {
  interface Info {
    readonly NFd: number;
    readonly NGoroutines: number;
    readonly IPv4Forwarding: boolean;
    readonly InitBinary: string;
    readonly InitCommit: { readonly ID: string };
    readonly ServerVersion: string;
    readonly DriverStatus: readonly (readonly [string, string])[];
  }
  interface Version {
    readonly Platform: { readonly Name: string };
    readonly Version: string;
    readonly GitCommit: string;
    readonly BuildTime: string;
    readonly Components: readonly {
      readonly Name: string;
      readonly Version: string;
      readonly Details: { readonly GitCommit: string; readonly BuildTime: string };
    }[];
  }
  const root = fileURLToPath(new URL('../../..', import.meta.url));
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    version: string;
    engineVersion: string;
  };
  const info = await callJson<Info>(engine.socketPath, 'GET', '/info');
  const fds = readdirSync(`/proc/${engine.pid}/fd`).length;
  assert.ok(info.NFd > 5 && Math.abs(info.NFd - fds) < 20, `${info.NFd}, ${fds}`);
  assert.ok(info.NGoroutines > 0);
  assert.equal(info.IPv4Forwarding, readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim() === '1');
  assert.equal(info.InitCommit.ID !== '', info.InitBinary !== '');
  assert.equal(info.ServerVersion, manifest.engineVersion);
  assert.deepEqual(
    info.DriverStatus.find(([name]) => name === 'Supports d_type'),
    ['Supports d_type', 'true'],
  );
  const version = await callJson<Version>(engine.socketPath, 'GET', '/version');
  assert.equal(version.Platform.Name, `engined ${manifest.version}`);
  assert.equal(version.Version, manifest.engineVersion);
  assert.match(version.GitCommit, existsSync(join(root, '.git')) ? /^[0-9a-f]{7,}$/ : /^$/);
  assert.ok(Date.parse(version.BuildTime) > Date.parse('2020-01-01'), version.BuildTime);
  const [own] = version.Components;
  assert.deepEqual(
    [own?.Name, own?.Version, own?.Details.GitCommit, own?.Details.BuildTime],
    ['Engine', version.Version, version.GitCommit, version.BuildTime],
  );
});
