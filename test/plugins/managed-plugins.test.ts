/**
 * Managed plugins: made, enabled, used as drivers, and there again after the daemon was killed. The first one, and that
 * of a registry, are managed with the CLI, the others by the requests that it makes.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { type CliResult, docker, dockerOk } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithRegistry, type EngineWithRegistry } from '../support/engine-with-image.js';
import { call, callJson, open } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { makePluginDir, pluginConfig, PluginRuntime } from '../support/managed-plugin.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
/** The configuration file, which each start writes. */
const settings: Record<string, unknown> = {};
let registry: EngineWithRegistry['registry'];
let runtime: PluginRuntime;

before(async () => {
  const started: EngineWithRegistry = await startEngineWithRegistry(cleanup, engined({ file: settings }));
  ({ engine, image, registry } = started);
  runtime = new PluginRuntime();
  cleanup.add(async () => runtime.remove());
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => engineOk(engine, args);
const byCli = (...args: string[]): Promise<string> => dockerOk(engine, args);
const cli = (args: readonly string[]): Promise<CliResult> => attempt(engine, args);

/** The process of the only plugin that runs, as the supervisor knows it; '' for none. */
async function taskPid(): Promise<string> {
  const socket = join(engine.dir, 'exec/supervisor/supervisor.sock');
  const args = ['--address', socket, '--namespace', 'plugins.engine', 'tasks', 'ls'];
  const [, row = ''] = execFileSync('ctr', args, { encoding: 'utf8' }).split('\n');
  return Promise.resolve(/RUNNING/.test(row) ? (row.split(/\s+/)[1] ?? '') : '');
}

/** Makes the file that a container waits for. The end of the container would kill an exec that makes it. */
async function goOn(container: string): Promise<void> {
  const headers = { 'Content-Type': 'application/x-tar' };
  const path = `/containers/${container}/archive?path=/`;
  await callJson(engine.socketPath, 'PUT', path, { body: tarOf([{ path: 'go' }]), headers });
}

/** Creates a plugin that is ready to be enabled. */
async function create(
  name: string,
  types: readonly string[],
  mode?: string,
  more: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const dir = makePluginDir({ ...pluginConfig(types, mode), ...more });
  try {
    const body = execFileSync('tar', ['-c', '-C', dir, 'config.json', 'rootfs'], { maxBuffer: 64 << 20 });
    const headers = { 'Content-Type': 'application/x-tar' };
    await callJson(engine.socketPath, 'POST', `/plugins/create?name=${encodeURIComponent(name)}`, { body, headers });
  } finally {
    rmSync(dir, { recursive: true });
  }
  await ok('plugin', 'set', name, `runtime.source=${runtime.dir}`);
}

describe('a managed volume plugin', () => {
  test('is made of a directory, shown and listed', async () => {
    const dir = makePluginDir(pluginConfig(['docker.volumedriver/1.0']));
    cleanup.add(async () => rmSync(dir, { recursive: true }));
    await byCli('plugin', 'create', 'team/volumes', dir);
    await byCli('plugin', 'set', 'team/volumes', `runtime.source=${runtime.dir}`);
    const [shown] = JSON.parse(await ok('plugin', 'inspect', 'team/volumes')) as [Record<string, unknown>];
    assert.equal(shown['Name'], 'team/volumes:latest');
    assert.equal(shown['Enabled'], false);
    assert.match(await ok('plugin', 'ls'), /team\/volumes:latest\s+A plugin of the tests\s+false/);
    assert.equal((await cli(['volume', 'create', '-d', 'team/volumes', 'early'])).status, 1);
  });

  test('is enabled, mounts volumes for containers, and is in use meanwhile', async () => {
    await ok('plugin', 'set', 'team/volumes', 'COLOUR=blue');
    await byCli('plugin', 'enable', 'team/volumes');
    await ok('volume', 'create', '-d', 'team/volumes', 'one');
    assert.equal(await ok('volume', 'inspect', '-f', '{{.Driver}}', 'one'), 'team/volumes:latest');
    assert.equal(await ok('run', '--rm', '-v', 'one:/data', image, 'cat', '/data/colour'), 'blue');
    assert.match((await cli(['plugin', 'disable', 'team/volumes'])).stderr, /plugin team\/volumes:latest is in use/);
    assert.match((await cli(['plugin', 'rm', 'team/volumes'])).stderr, /plugin team\/volumes:latest is in use/);
  });

  test('goes on when the daemon is killed, and its volumes with it', async () => {
    const pid = async (): Promise<unknown> =>
      (await callJson<{ Status: { pid: number } }>(engine.socketPath, 'GET', '/volumes/one')).Status.pid;
    const before = [await pid(), await taskPid()];
    await ok('run', '-d', '--name', 'user', '-v', 'one:/data', image, 'sh', '-c', 'echo 1 >/data/n; exec sleep 1000');
    await engine.stop('SIGKILL');
    await engine.start();
    assert.deepEqual([await pid(), await taskPid()], before);
    await waitFor('the file', async () => (await cli(['exec', 'user', 'cat', '/data/n'])).stdout === '1\n');
    await ok('rm', '-f', 'user');
    await waitFor('the unmount', () => !readFileSync('/proc/mounts', 'utf8').includes('/propagated-mount/one '));
  });

  test('is started again when its process dies', async () => {
    const before = await taskPid();
    process.kill(Number(before), 'SIGKILL');
    await waitFor('another process', async () => ((await taskPid()) || before) !== before);
    assert.equal(await ok('run', '--rm', '-v', 'one:/data', image, 'cat', '/data/colour'), 'blue');
  });

  test('cannot show files of the host by a link, nor a volume its own', async () => {
    // The plugin says that this volume is at /out/etc, where /out is a link to /.
    await ok('volume', 'create', '-d', 'team/volumes', 'astray');
    const own = 'hosts\nresolv.conf';
    assert.equal(await ok('run', '--rm', '-v', 'astray:/data:nocopy', image, 'ls', '/data'), own);
    await ok('create', '--name', 'stopped', '-v', 'astray:/data:nocopy', image);
    const names = spawnSync('tar', ['-t'], { input: (await cli(['cp', 'stopped:/data', '-'])).stdout });
    assert.deepEqual(String(names.stdout).trim().split('\n').toSorted(), ['data/', 'data/hosts', 'data/resolv.conf']);
    await ok('rm', 'stopped');
    await ok('run', '-d', '--name', 'holder', '-v', 'one:/data', image, 'sleep', '1000');
    await ok('exec', 'holder', 'sh', '-c', 'mkdir /data/in; ln -s / /data/top');
    const part = (path: string): string => `type=volume,src=one,dst=/part,volume-subpath=${path}`;
    assert.equal(await ok('run', '--rm', '--mount', part('top'), image, 'ls', '/part'), 'colour\nin\ntop');
    assert.match((await cli(['run', '--rm', '--mount', part('in/no'), image])).stderr, /one\/in\/no: no such file/);
    await ok('rm', '-f', 'holder');
  });

  test('is removed with what it had', async () => {
    await ok('volume', 'rm', 'one', 'astray');
    await byCli('plugin', 'disable', 'team/volumes');
    const disabled = await cli(['volume', 'create', '-d', 'team/volumes', 'late']);
    assert.match(disabled.stderr, /plugin team\/volumes found but disabled/);
    await byCli('plugin', 'rm', 'team/volumes');
    assert.equal(await ok('plugin', 'ls', '-q'), '');
    assert.deepEqual(readdirSync(join(engine.dir, 'data/plugins')), []);
  });
});

describe('a managed log plugin', () => {
  test('takes what containers print, and is in use meanwhile', async () => {
    await create('team/logs', ['docker.logdriver/1.0']);
    assert.match((await cli(['create', '--log-driver', 'team/logs', image])).stderr, /found but disabled/);
    await ok('plugin', 'enable', 'team/logs');
    assert.match(await ok('info', '-f', '{{.Plugins.Log}}'), / team\/logs:latest\]/);
    const script = 'echo first; until [ -e /go ]; do sleep 0.1; done; echo second';
    await ok('run', '-d', '--name', 'logged', '--log-driver', 'team/logs', image, 'sh', '-c', script);
    const taken = (line: string): Promise<unknown> =>
      waitFor(`the plugin to take ${line}`, () => engine.log.includes(`/logged took ${line}`));
    await taken('first');
    assert.match((await cli(['plugin', 'disable', 'team/logs'])).stderr, /is in use/);
    process.kill(Number(await taskPid()), 'SIGKILL');
    await goOn('logged');
    await taken('second');
    await waitFor('the end', () => engine.log.includes('/logged ended'));
    assert.equal(await ok('logs', 'logged'), 'first\nsecond');
    await ok('rm', '-f', 'logged');
    const refused = await cli(['run', '--rm', '--log-driver', 'team/logs', '--log-opt', 'refuse=me', image, 'true']);
    assert.match(refused.stderr, /failed to initialize logging driver: refused: me/);
    const places = readdirSync(join(engine.dir, 'exec/plugins'));
    await waitFor('no FIFO to be left', () =>
      places.every((name) => readdirSync(join(engine.dir, 'exec/plugins', name, 'logging')).length === 0),
    );
  });

  test('that is disabled for a while makes containers wait, and gets each line afterwards', async () => {
    const script =
      'echo before; until [ -e /go ]; do sleep 0.1; done; for i in 1 2 3; do echo away$i; done; sleep 1000';
    const run = async (name: string): Promise<void> =>
      void (await ok('run', '-d', '--name', name, '--log-driver', 'team/logs', image, 'sh', '-c', script));
    const taken = (name: string): string[] =>
      [...engine.log.matchAll(new RegExp(`/${name} took (\\w+)`, 'g'))].map(([, line = '']) => line);
    for (const name of ['waits', 'leaves']) await run(name);
    await waitFor('the first lines', () => [...taken('waits'), ...taken('leaves')].length === 2);
    await ok('plugin', 'disable', '-f', 'team/logs');
    for (const name of ['waits', 'leaves']) await goOn(name);
    for (const name of ['waits', 'leaves'])
      await waitFor('the copy', async () => (await ok('logs', name)) === 'before\naway1\naway2\naway3');
    // One that ends does not wait for the plugin.
    await ok('rm', '-f', 'leaves');
    await ok('plugin', 'enable', 'team/logs');
    await waitFor('all lines', () => taken('waits').length === 4);
    assert.deepEqual(taken('waits'), ['before', 'away1', 'away2', 'away3']);
    assert.deepEqual(taken('leaves'), ['before']);
    await ok('rm', '-f', 'waits');
  });

  test('that reads logs is asked for them, and no copy is kept', async () => {
    await ok('plugin', 'disable', '-f', 'team/logs');
    await ok('plugin', 'set', 'team/logs', 'args=reads');
    await ok('plugin', 'enable', 'team/logs');
    const script = 'echo one; echo two >&2; until [ -e /go ]; do sleep 0.1; done; echo three';
    const id = await ok('run', '-d', '--name', 'told', '--log-driver', 'team/logs', image, 'sh', '-c', script);
    await waitFor('the plugin to take two', () => engine.log.includes('/told took two'));
    const got = await docker(engine, ['logs', 'told']);
    assert.deepEqual([got.stdout, got.stderr], ['one\n', 'two\n']);
    const last = await cli(['logs', '-t', '--tail', '1', 'told']);
    assert.match(`${last.stdout}${last.stderr}`, /^20\S+Z (one|two)\n$/);
    const left = call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1&tail=0`);
    const gone = await open(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1&tail=1`);
    gone.message.on('error', () => undefined);
    // One that leaves before the plugin was asked is not told anything.
    await waitFor('the plugin to be asked', () => engine.log.split('/told asked for').length - 1 === 4);
    gone.close();
    const told = (): number => engine.log.split('/told was told').length - 1;
    await waitFor('the plugin to hear that a follower left', () => told() === 3);
    await goOn('told');
    assert.match((await left).text, /three\n$/);
    await ok('wait', 'told');
    assert.equal(await ok('logs', 'told'), 'one\nthree');
    assert.ok(!readdirSync(join(engine.dir, 'data/containers', id)).includes('container-cached.log'));
    await ok('rm', 'told');
    await ok('plugin', 'rm', '-f', 'team/logs');
  });
});

/** Its links are those of the host. */
const ON_HOST = {
  network: { type: 'host' },
  linux: { capabilities: ['CAP_NET_ADMIN'], allowAllDevices: false, devices: null },
};

describe('managed plugins of networks', () => {
  test('drive networks and hand out addresses, also when the daemon was killed', async () => {
    await create('team/links', ['docker.networkdriver/1.0'], 'serve', ON_HOST);
    await create('team/addresses', ['docker.ipamdriver/1.0']);
    const network = ['network', 'create', '-d', 'team/links', '--ipam-driver', 'team/addresses', 'managed'];
    assert.match((await cli(network)).stderr, /plugin team\/\w+ found but disabled/);
    for (const name of ['team/links', 'team/addresses']) await ok('plugin', 'enable', name);
    await ok(...network);
    assert.match(await ok('info', '-f', '{{.Plugins.Network}}'), / team\/links:latest\]/);
    const links = ['run', '--rm', '--network', 'managed', image, 'ip', '-o', 'addr', 'show', 'managed0'];
    assert.match(await ok(...links), / inet 10\.97\.0\.\d+\/24 /);
    await ok('run', '-d', '--name', 'linked', '--network', 'managed', '--restart', 'always', image, 'sleep', '1000');
    for (const name of ['team/links', 'team/addresses'])
      assert.match((await cli(['plugin', 'disable', name])).stderr, /is in use/, name);
    await engine.stop('SIGKILL');
    await engine.start();
    await waitFor('the container', async () => (await cli(['exec', 'linked', 'true'])).status === 0);
    const [shown] = JSON.parse(await ok('inspect', 'linked')) as {
      NetworkSettings: { Networks: { managed: { IPAddress: string } } };
    }[];
    const address = shown?.NetworkSettings.Networks.managed.IPAddress ?? '';
    assert.match(
      await ok('exec', 'linked', 'ip', '-o', 'addr', 'show', 'managed0'),
      new RegExp(` inet ${address}/24 `),
    );
    await ok('rm', '-f', 'linked');
    await ok('network', 'rm', 'managed');
    for (const name of ['team/links', 'team/addresses']) await ok('plugin', 'disable', name);
    await ok('plugin', 'rm', 'team/links', 'team/addresses');
  });
});

describe('a managed authorization plugin', () => {
  test('is asked from a reload on, and after a start before any request', async () => {
    await create('team/judge', ['docker.authz/1.0']);
    await ok('plugin', 'enable', 'team/judge');
    const denied = /authorization denied by plugin team\/judge\S*: no volumes here/;
    const configured = (plugins: readonly string[]): void => {
      settings['authorization-plugins'] = plugins;
      writeFileSync(join(engine.dir, 'daemon.json'), JSON.stringify(settings));
      process.kill(engine.pid, 'SIGHUP');
    };
    const make = async (): Promise<string> =>
      (await call(engine.socketPath, 'POST', '/volumes/create', { json: { Name: 'judged' } })).text;
    configured(['team/judge']);
    await waitFor('the denial', async () => denied.test(await make()));
    await ok('volume', 'rm', '-f', 'judged');
    assert.equal(await ok('volume', 'ls', '-q'), '');
    await engine.stop('SIGKILL');
    await engine.start();
    assert.match(await make(), denied);
    assert.match((await cli(['plugin', 'disable', 'team/judge'])).stderr, /is in use/);
    configured([]);
    await waitFor('the consent', async () => /"Name":"judged"/.test(await make()));
    await ok('volume', 'rm', 'judged');
    await ok('plugin', 'disable', 'team/judge');
    await ok('plugin', 'rm', 'team/judge');
  });
});

describe('a plugin of a registry', () => {
  test('is pushed, installed with the privileges that it needs, and upgraded', async () => {
    const name = `${registry.host}/team/remote:1`;
    await create(name, ['docker.volumedriver/1.0']);
    assert.match(await ok('plugin', 'push', name), /digest: sha256:[0-9a-f]{64} size: \d+/);
    await ok('plugin', 'rm', name);
    const needed = await callJson<{ Name: string }[]>(
      engine.socketPath,
      'GET',
      `/plugins/privileges?remote=${encodeURIComponent(name)}`,
    );
    assert.deepEqual(
      needed.map(({ Name }) => Name),
      ['network', 'mount', 'capabilities'],
    );
    const target = `/plugins/pull?remote=${encodeURIComponent(name)}&name=mine`;
    const refused = await call(engine.socketPath, 'POST', target, { json: needed.slice(1) });
    assert.match(refused.text, /incorrect privileges/);
    assert.deepEqual(readdirSync(join(engine.dir, 'data/plugins')), []);
    const settings = [`runtime.source=${runtime.dir}`, 'COLOUR=green'];
    await ok('plugin', 'install', '--grant-all-permissions', '--alias', 'mine', name, ...settings);
    assert.equal(await ok('plugin', 'inspect', '-f', '{{.Enabled}} {{.PluginReference}}', 'mine'), `true ${name}`);
    assert.match((await cli(['plugin', 'upgrade', '--grant-all-permissions', 'mine'])).stderr, /must be disabled/);
    await ok('plugin', 'disable', 'mine');
    await ok('plugin', 'upgrade', '--grant-all-permissions', '--skip-remote-check', 'mine', name);
    assert.match(await ok('plugin', 'inspect', '-f', '{{.Settings.Env}}', 'mine'), /COLOUR=green/);
    await ok('plugin', 'enable', 'mine');
    assert.equal(
      await ok('run', '--rm', '--volume-driver', 'mine', '-v', 'far:/d', image, 'cat', '/d/colour'),
      'green',
    );
    await ok('volume', 'rm', 'far');
    await ok('plugin', 'rm', '-f', 'mine');
  });

  test('that is none leaves nothing', async () => {
    const at = encodeURIComponent(registry.reference);
    for (const [method, path] of [
      ['GET', `/plugins/privileges?remote=${at}`],
      ['POST', `/plugins/pull?remote=${at}`],
    ] as const) {
      const reply = await call(engine.socketPath, method, path);
      assert.equal(reply.status, 400, reply.text);
      assert.match(reply.text, /did not find plugin config for specified reference/);
    }
    const missing = await call(engine.socketPath, 'POST', `/plugins/pull?remote=${registry.host}/no/such`);
    assert.equal(missing.status, 404, missing.text);
    assert.deepEqual(readdirSync(join(engine.dir, 'data/plugins')), []);
  });
});

describe('bad plugins', () => {
  test('one that ends or never listens is not enabled, and says why', async () => {
    await create('bad/ends', ['docker.volumedriver/1.0'], 'fail');
    await create('bad/mute', ['docker.volumedriver/1.0'], 'mute');
    const ends = await cli(['plugin', 'enable', 'bad/ends']);
    assert.match(ends.stderr, /ended with exit code 7 before it listened on its socket: the fault of this plugin/);
    assert.match((await cli(['plugin', 'enable', 'bad/mute'])).stderr, /does not listen: dial unix .* 30 seconds/);
    assert.match(await ok('plugin', 'ls', '--filter', 'enabled=false', '--format', '{{.Name}}'), /^bad\/ends:latest\n/);
    assert.match((await cli(['plugin', 'disable', 'bad/ends'])).stderr, /plugin bad\/ends:latest found but disabled/);
    await ok('plugin', 'rm', 'bad/ends', 'bad/mute');
  });

  test('one that never answers holds up calls for its time only, and leaves nothing', async () => {
    await create('bad/deaf', ['docker.volumedriver/1.0', 'docker.logdriver/1.0'], 'deaf');
    await ok('plugin', 'enable', '--timeout', '2', 'bad/deaf');
    const refusals = [
      ['volume', 'create', '-d', 'bad/deaf', 'never'],
      ['run', '--rm', '--name', 'never', '--log-driver', 'bad/deaf', image, 'true'],
      ['run', '--rm', '--name', 'never', '--volume-driver', 'bad/deaf', '-v', 'never:/v', image, 'true'],
    ];
    for (const args of refusals)
      assert.match((await cli(args)).stderr, /(Create|StartLogging): no answer within 2 seconds/, args.join(' '));
    assert.equal(await ok('volume', 'ls', '-q'), '');
    assert.equal(await ok('ps', '-aq'), '');
    await ok('plugin', 'disable', 'bad/deaf');
    await ok('plugin', 'rm', 'bad/deaf');
  });

  test('archives and settings that are wrong are refused with the reason', async () => {
    const made = async (entries: Parameters<typeof tarOf>[0], name = 'bad/one'): Promise<[number, string]> => {
      const headers = { 'Content-Type': 'application/x-tar' };
      const target = `/plugins/create?name=${encodeURIComponent(name)}`;
      const { status, text } = await call(engine.socketPath, 'POST', target, { body: tarOf(entries), headers });
      return [status, text];
    };
    const config = (value: unknown): Parameters<typeof tarOf>[0] => [
      { path: 'config.json', content: JSON.stringify(value) },
    ];
    const whole = pluginConfig(['docker.volumedriver/1.0']);
    for (const [entries, status, message] of [
      [[], 400, /config not found/],
      [[{ path: 'config.json', content: '{' }], 400, /failed to parse config/],
      [[{ path: 'config.json', type: 'symlink', target: '/etc/passwd' }], 400, /config.json is not a file/],
      [config({ ...whole, entrypoint: [] }), 400, /entrypoint must be/],
      [config({ ...whole, interface: { types: ['x.y/1'], socket: '../../up.sock' } }), 400, /interface.socket must be/],
      [config({ ...whole, mounts: 7 }), 400, /mounts must be a list/],
    ] as const) {
      const reply = await made(entries as Parameters<typeof tarOf>[0]);
      assert.deepEqual([reply[0], message.test(reply[1])], [status, true], reply[1]);
    }
    assert.deepEqual((await made(config(whole)))[0], 204);
    assert.deepEqual((await made(config(whole)))[0], 409);
    assert.match((await cli(['plugin', 'set', 'bad/one', 'FIXED=2'])).stderr, /"FIXED" is not settable/);
    assert.match((await cli(['plugin', 'set', 'bad/one', 'nothing=2'])).stderr, /"nothing" not found/);
    assert.match((await cli(['plugin', 'rm', 'bad/none'])).stderr, /plugin "bad\/none" not found/);
    await ok('plugin', 'rm', 'bad/one');
    assert.deepEqual(readdirSync(join(engine.dir, 'data/plugins')), []);
  });
});
