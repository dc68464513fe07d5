/**
 * A client is killed in each phase of its build, by both doors. The build ends then, and nothing of it stays: no
 * process, container, mount, network namespace, control group or temporary file.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx, type RunningBuildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { buildImage, buildLayer, busyboxEntries, pushImage } from '../support/image-builder.js';
import { containerCgroups, mountsBelow, processesOf } from '../support/leftovers.js';
import { startRegistry } from '../support/registry.js';
import { type RegistryGate, startRegistryGate } from '../support/registry-gate.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'vanishing-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
let engine: Engine;
let image: string;
let buildx: Buildx;
let gate: RegistryGate;
/** Requests that the gate holds, or has held in the last test. */
let held: IncomingMessage[] = [];
/** The state of the machine while nothing is built. */
let idle: readonly string[];

/** The client itself, and the daemon's own helpers, which stay for a while. */
const NOT_OF_STEPS = /docker-buildx|\/(?:supervisor\/inits|keepers)\//;

/** Everything on the machine, and every file of the daemon, that a build has only while it lasts. */
function remains(): string[] {
  const { dir } = engine;
  const places = ['exec/io', 'exec/places', 'exec/netns', 'exec/agents', 'exec/roots', 'data/tmp'];
  const stores = ['data/overlay2/writable', 'data/builder/uploads'];
  return [
    ...[...places, ...stores].flatMap((path) => namesIn(join(dir, path))),
    ...mountsBelow(dir).map((path) => `mount ${path}`),
    ...processesOf(dir).flatMap(({ pid, command }) => (NOT_OF_STEPS.test(command) ? [] : `process ${pid} ${command}`)),
    ...containerCgroups(engine.mark).map((path) => `cgroup ${path}`),
  ];
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path).map((name) => `${path}/${name}`);
  } catch {
    return [];
  }
}

/** Also asks whether the daemon itself finds anything of nobody. */
async function nothingStays(): Promise<void> {
  let left: string[] = [];
  await waitFor(
    () => `nothing to stay of the build: ${left.join(', ')}`,
    () => (left = remains().filter((thing) => !idle.includes(thing))).length === 0,
  );
  // The daemon gives up by itself a registry that says nothing for a minute.
  await waitFor('the registry to be left alone', () => held.every(({ socket }) => socket.destroyed), 30_000);
  const { socketPath } = engine;
  assert.deepEqual(await callJson(socketPath, 'GET', '/containers/json?all=1'), []);
  const { findings } = await callJson<{ findings: object[] }>(socketPath, 'POST', '/engine/fsck?dryRun=1');
  assert.deepEqual(findings, []);
}

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  gate = await startRegistryGate(registry);
  cleanup.add(() => gate.stop());
  await pushImage(registry.url, 'held/busybox', '1', buildImage({ layers: [buildLayer(busyboxEntries())] }));
  buildx = new Buildx(join(directory, 'work'), engine.host);
  idle = remains();
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

/** Holds what matches until the next test. */
function hold(method: string, path: RegExp): void {
  held = [];
  gate.guard = (incoming) => {
    if (incoming.method !== method || !path.test(incoming.url ?? '')) return 'passes';
    held.push(incoming);
    return 'taken';
  };
}

const isHeld = (): Promise<unknown> => waitFor('the registry to be asked', () => held.length > 0);

/** Waits for a thing that is there for a while only. */
const isThere = (what: RegExp): Promise<unknown> =>
  waitFor(
    () => `${what} among ${remains().join(', ')}`,
    () => remains().some((thing) => what.test(thing)),
    undefined,
    1,
  );

/** A context of a stage that takes a while to copy: many files. */
const MANY = 'RUN mkdir /many && cd /many && seq 5000 | xargs touch';
const HELD_BASE = (): string => `${gate.host}/held/busybox:1`;

describe('a client of BuildKit vanishes', { skip }, () => {
  const vanish = async (session: RunningBuildx, when: () => Promise<unknown>): Promise<void> => {
    await when();
    session.kill('SIGKILL');
    await session.ended;
    await nothingStays();
  };

  test('while its files come', async () => {
    buildx.write('files/Dockerfile', `FROM ${image}\nCOPY . /\n`);
    buildx.write('files/large', Buffer.alloc(256 << 20, 'x'));
    const session = buildx.start(['build', '.'], { in: 'files' });
    await vanish(session, () => session.said(/transferring context/));
  });

  test('while an image is pulled', async () => {
    hold('GET', /\/blobs\/sha256:/);
    await vanish(buildx.start(['build', '-'], { input: `FROM ${HELD_BASE()}\nRUN true\n` }), isHeld);
  });

  test('while a RUN has every kind of mount', async () => {
    const input =
      `FROM ${image} AS other\nRUN echo x > /x\nFROM ${image}\n` +
      'RUN --mount=type=bind,from=other,target=/b --mount=type=bind,from=other,target=/w,rw ' +
      '--mount=type=cache,target=/c --mount=type=tmpfs,target=/t --mount=type=secret,id=s ' +
      'echo up; echo $$ > /b; exec sleep 31339\n';
    writeFileSync(join(directory, 'secret'), 'of nobody');
    const session = buildx.start(['build', '--secret', `id=s,src=${join(directory, 'secret')}`, '-'], { input });
    await vanish(session, () => session.said(/ up$/m));
  });

  test('while a stage is copied', async () => {
    const input = `FROM ${image} AS other\n${MANY}\nFROM ${image}\nCOPY --from=other /many /many\n`;
    await vanish(buildx.start(['build', '-'], { input }), () => isThere(/mount .*build-from-/));
  });

  test('while its result is written', async () => {
    const fifo = join(directory, 'fifo');
    execFileSync('mkfifo', [fifo]);
    const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const input = `FROM ${image}\nRUN head -c 5000000 /dev/urandom > /x\n`;
      const session = buildx.start(['build', '-o', `type=tar,dest=${fifo}`, '-'], { input });
      await vanish(session, () => session.said(/sending tarball/));
    } finally {
      closeSync(reader);
    }
  });

  test('while its image is pushed', async () => {
    hold('POST', /\/uploads\//);
    const session = buildx.start(['build', '--push', '-t', `${gate.host}/held/pushed:1`, '-'], {
      input: `FROM ${image}\nRUN echo pushed > /pushed\n`,
    });
    await vanish(session, isHeld);
  });
});

describe('a client of the classic builder vanishes', () => {
  const vanish = async (
    dockerfile: string,
    when: (said: () => string) => Promise<unknown>,
    extra = 0,
  ): Promise<void> => {
    const at = mkdtempSync(join(directory, 'context-'));
    writeFileSync(join(at, 'Dockerfile'), dockerfile);
    const tar = execFileSync('tar', ['-C', at, '-c', '.']);
    const headers = { 'Content-Type': 'application/x-tar', 'Content-Length': tar.length + extra };
    const path = '/build?nocache=1';
    const sent = request({ socketPath: engine.socketPath, path, method: 'POST', headers, agent: false });
    let text = '';
    sent.on('response', (response) => response.on('data', (piece: Buffer) => (text += piece.toString())));
    const closed = new Promise((resolve) => sent.once('error', resolve).once('close', resolve));
    sent.write(tar);
    if (extra === 0) sent.end();
    await when(() => text);
    sent.destroy();
    await closed;
    await nothingStays();
  };
  const says = (pattern: RegExp) => (said: () => string) =>
    waitFor(
      () => `${pattern} in ${said()}`,
      () => pattern.test(said()),
    );

  test('while its archive comes', () => vanish(`FROM ${image}\n`, () => isThere(/data\/tmp\//), 1 << 20));

  test('while an image is pulled', async () => {
    hold('GET', /\/blobs\/sha256:/);
    await vanish(`FROM ${HELD_BASE()}\nRUN true\n`, isHeld);
  });

  test('while a RUN goes on', () => vanish(`FROM ${image}\nRUN echo up; exec sleep 31340\n`, says(/up\\n/)));

  test('while a stage is copied', () =>
    vanish(`FROM ${image} AS other\n${MANY}\nFROM ${image}\nCOPY --from=other /many /many\n`, () =>
      isThere(/mount .*build-from-/),
    ));
});
