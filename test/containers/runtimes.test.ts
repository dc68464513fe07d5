/** Runtimes besides the default one, in each way that the configuration and a container can name them. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const SHIM = 'io.containerd.runc.v2';
const MIB = 1 << 20;

const cleanup = new Cleanup();
let dir: string;
let engine: Engine;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-runtimes-'));
  cleanup.add(() => rm(dir, { recursive: true, force: true }));
  // On PATH, not registered; it notes that it was called.
  await program('containerd-shim-noting-v1', 'containerd-shim-runc-v2');
  await program('noting-crun', 'crun');
  await program('noting-runc', 'runc');
  await program('telling', `grep -o '"cgroupsPath":"[^"]*"' config.json >> ${join(dir, 'calls')}; false`);
  engine = await start(
    '--add-runtime',
    'crun=crun',
    '--add-runtime',
    `noting=${join(dir, 'noting-crun')}`,
    '--default-ulimit',
    'nofile=100:200',
    '--no-new-privileges',
  );
  cleanup.add(() => engine.close());
});
after(() => cleanup.run());
afterEach(() => rm(join(dir, 'calls'), { force: true }));

/** crun refuses hosts that have control groups of both versions: it is not shown those of version 2. */
const HIDE_UNIFIED = 'if [ -e /sys/fs/cgroup/unified ]; then umount -l /sys/fs/cgroup/unified; fi; exec "$@"';

async function start(...args: string[]): Promise<Engine> {
  const kind = engined({ args, env: { PATH: `${dir}:${process.env['PATH']}` } });
  return Engine.start(
    await withImage({
      ...kind,
      command: (...where) => ['unshare', '--mount', 'sh', '-c', HIDE_UNIFIED, 'sh', ...kind.command(...where)],
    }),
  );
}

async function program(name: string, does: string): Promise<void> {
  await writeFile(
    join(dir, name),
    `#!/bin/sh\necho "${name} $*" >> ${join(dir, 'calls')}\n${does.includes(';') ? does : `exec ${does} "$@"`}\n`,
  );
  await chmod(join(dir, name), 0o755);
}

const calls = async (): Promise<string> => (existsSync(join(dir, 'calls')) ? readFile(join(dir, 'calls'), 'utf8') : '');

interface Inspection {
  readonly HostConfig: { readonly Runtime: string };
  readonly State: { readonly ExitCode: number; readonly OOMKilled: boolean };
}

const api = <T = unknown>(method: string, path: string, json?: object): Promise<T> =>
  callJson<T>(engine.socketPath, method, path, json === undefined ? {} : { json });
const inspect = (id: string): Promise<Inspection> => api<Inspection>('GET', `/containers/${id}/json`);

async function end(id: string): Promise<readonly unknown[]> {
  const { State } = await inspect(id);
  return [State.ExitCode, State.OOMKilled];
}

async function create(runtime: string, script: string, memory: object): Promise<string> {
  const HostConfig = { Runtime: runtime, ...memory };
  const Cmd = ['sh', '-c', script];
  return (await api<{ Id: string }>('POST', '/containers/create', { Image: SEEDED_IMAGE, Cmd, HostConfig })).Id;
}

/** A container's whole life under a runtime. */
async function live(runtime: string): Promise<void> {
  const waiting = 'echo begun; trap "exit 5" TERM; sleep 1000 & wait';
  const id = await create(runtime, waiting, { Memory: 64 * MIB });
  try {
    await api('POST', `/containers/${id}/start`);
    assert.equal((await inspect(id)).HostConfig.Runtime, runtime);
    assert.equal(await engineOk(engine, ['exec', id, 'sh', '-c', 'echo inside; id -u']), 'inside\n0');
    await api('POST', `/containers/${id}/pause`);
    await api('POST', `/containers/${id}/unpause`);
    await api('POST', `/containers/${id}/update`, { Memory: 48 * MIB, MemorySwap: 48 * MIB });
    const stats = await api<{ memory_stats: { limit: number; usage: number }; pids_stats: { current: number } }>(
      'GET',
      `/containers/${id}/stats?stream=false&one-shot=true`,
    );
    assert.equal(stats.memory_stats.limit, 48 * MIB);
    assert.ok(stats.memory_stats.usage > 0 && stats.pids_stats.current > 0);
    await api('POST', `/containers/${id}/stop?t=1`);
    assert.match((await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1`)).text, /begun\n$/);
    assert.deepEqual(await end(id), [5, false]);
    await api('POST', `/containers/${id}/start`);
    await api('POST', `/containers/${id}/kill`);
    assert.deepEqual(await end(id), [137, false]);
  } finally {
    await api('DELETE', `/containers/${id}?force=1`);
  }
  const full = await create(runtime, 'x=a; while :; do x=$x$x; done', { Memory: 16 * MIB, MemorySwap: 16 * MIB });
  try {
    await api('POST', `/containers/${full}/start`);
    assert.equal((await api<{ StatusCode: number }>('POST', `/containers/${full}/wait`)).StatusCode, 137);
    assert.deepEqual(await end(full), [137, true]);
  } finally {
    await api('DELETE', `/containers/${full}?force=1`);
  }
}

test('what the daemon sets for all containers is in force and shown; runtimes tell their features', async () => {
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: {
      Image: SEEDED_IMAGE,
      Cmd: ['sh', '-c', 'ulimit -n; ulimit -c'],
      HostConfig: { Ulimits: [{ Name: 'core', Soft: 0, Hard: 0 }] },
    },
  });
  const { HostConfig } = await callJson<{ HostConfig: { Ulimits: unknown } }>(
    engine.socketPath,
    'GET',
    `/containers/${Id}/json`,
  );
  assert.deepEqual(HostConfig.Ulimits, [
    { Name: 'core', Soft: 0, Hard: 0 },
    { Name: 'nofile', Soft: 100, Hard: 200 },
  ]);
  assert.equal(await engineOk(engine, ['start', '-a', Id]), '100\n0');
  await engineOk(engine, ['rm', Id]);
  type Info = {
    SecurityOptions: string[];
    Runtimes: Record<string, { path: string; status?: Record<string, string> }>;
  };
  const [known, old] = await Promise.all(
    ['/info', '/v1.43/info'].map((path) => callJson<Info>(engine.socketPath, 'GET', path)),
  );
  const features = known?.Runtimes['runc']?.status?.['org.opencontainers.runtime-spec.features'] ?? '{}';
  assert.ok((JSON.parse(features) as { ociVersionMax?: string }).ociVersionMax);
  assert.deepEqual(old?.Runtimes['runc'], { path: 'runc' });
  assert.ok(known?.SecurityOptions.includes('name=no-new-privileges'));
  assert.ok(
    (await callJson<Info>(engine.socketPath, 'GET', '/v1.24/info')).SecurityOptions.includes('no-new-privileges'),
  );
});

test('crun by its name on PATH, with the exit codes of commands that cannot be started', async () => {
  await live('crun');
  for (const [command, exitCode] of [
    ['missing', 127],
    ['/etc/passwd', 126],
    ['/etc', 126],
  ] as const) {
    const { Id } = await api<{ Id: string }>('POST', '/containers/create', {
      Image: SEEDED_IMAGE,
      Cmd: [command],
      HostConfig: { Runtime: 'crun' },
    });
    assert.equal((await call(engine.socketPath, 'POST', `/containers/${Id}/start`)).status, 400);
    assert.deepEqual(await end(Id), [exitCode, false]);
    await api('DELETE', `/containers/${Id}`);
  }
});

test('the shim of the reference runtime by its name, without registration', () => live(SHIM));

test('a drop-in by its path is really called', async () => {
  await live('noting');
  assert.match(await calls(), /^noting-crun .*create/m);
});

test('a shim on PATH by its qualified name, without registration', async () => {
  await live('io.example.noting.v1');
  assert.match(await calls(), /^containerd-shim-noting-v1 .*start/m);
});

test('a shim by its path, without registration', async () => {
  const path = join(dir, 'containerd-shim-noting-v1');
  await live(path);
  assert.match(await calls(), /^containerd-shim-noting-v1 .*start/m);
});

test('a registered shim, the options of the reference shim, and arguments of a drop-in', async () => {
  const runtimes = {
    shim: { runtimeType: 'io.example.noting.v1' },
    'shim-path': { runtimeType: join(dir, 'containerd-shim-noting-v1') },
    'runc-options': { runtimeType: 'io.supervisor.runc.v2', options: { BinaryName: join(dir, 'noting-crun') } },
    'more-options': {
      runtimeType: 'io.containerd.runc.v2',
      options: {
        BinaryName: join(dir, 'noting-runc'),
        Root: join(dir, 'state'),
        NoNewKeyring: true,
        NoPivotRoot: false,
        ShimCgroup: '',
        IoUid: 0,
        IoGid: 0,
        CriuImagePath: dir,
        CriuWorkPath: dir,
      },
    },
    systemd: {
      runtimeType: 'io.containerd.runc.v2',
      options: { BinaryName: join(dir, 'telling'), SystemdCgroup: true },
    },
    arguments: { path: 'noting-crun', runtimeArgs: ['--debug', '--cgroup-manager=cgroupfs'] },
  };
  // A setting that flags give cannot be in the file, too.
  const other = await start();
  const first = engine;
  try {
    engine = other;
    await writeFile(join(other.dir, 'daemon.json'), JSON.stringify({ runtimes, 'default-runtime': SHIM }));
    await callJson(other.socketPath, 'POST', '/engine/config/reload');
    const named = ['--name', 'by-default', SEEDED_IMAGE, 'sh', '-c', 'echo ran'];
    assert.equal(await engineOk(engine, ['run', ...named]), 'ran');
    assert.equal(await engineOk(engine, ['inspect', '--format', '{{.HostConfig.Runtime}}', 'by-default']), SHIM);
    for (const [name, noted] of [
      ['shim', /^containerd-shim-noting-v1 .*start/m],
      ['shim-path', /^containerd-shim-noting-v1 .*start/m],
      ['runc-options', /^noting-crun .*create/m],
      ['more-options', /^noting-runc --root \S+\/state\/engine .*create .*--no-new-keyring/m],
      ['arguments', /^noting-crun --debug --cgroup-manager=cgroupfs .*create/m],
    ] as const) {
      await live(name);
      assert.match(await calls(), noted);
      await rm(join(dir, 'calls'));
    }
    // It is given the form of path that it asks for; without systemd no more can be tried.
    await assert.rejects(engineOk(engine, ['run', '--name', 'sliced', '--runtime', 'systemd', SEEDED_IMAGE, 'true']));
    const id = await engineOk(engine, ['inspect', '--format', '{{.Id}}', 'sliced']);
    assert.match(await calls(), /^telling .*--systemd-cgroup .*create/m);
    assert.ok((await calls()).includes(`"cgroupsPath":"system.slice:engine:${id}"`), await calls());
    await other.close();
  } finally {
    engine = first;
    await other.discard();
  }
});

test('a name that nobody registered', async () => {
  await assert.rejects(
    engineOk(engine, ['create', '--runtime', 'nobody', SEEDED_IMAGE]),
    /unknown or invalid runtime name: nobody/,
  );
  await assert.rejects(
    engineOk(engine, ['run', '--rm', '--runtime', 'io.example.missing.v1', SEEDED_IMAGE, 'true']),
    /io\.example\.missing\.v1/,
  );
});
