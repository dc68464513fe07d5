/** Options of the daemon that count for containers created while they are set, and limits that containers inherit. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';

const NONE = ['--ip-forward-no-drop'];
const ALL = [
  ...NONE,
  '--default-ulimit',
  'nofile=100:200',
  '--default-ulimit',
  'core=0',
  '--no-new-privileges',
  '--init',
];
/** The daemon itself is started with these limits of open files. */
const LIMITS = 'ulimit -Sn 777; ulimit -Hn 5000; exec "$@"';
const TELL = 'ulimit -Sn; ulimit -Hn; ulimit -c; grep NoNewPrivs /proc/self/status; cat /proc/1/comm; :';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
/** The next start has these flags. */
let flags = ALL;

before(async () => {
  const kind = engined();
  const command = (dir: string, socketPath: string): readonly string[] => [
    'sh',
    '-c',
    LIMITS,
    'sh',
    ...kind.command(dir, socketPath),
    ...flags,
  ];
  ({ engine, image } = await startEngineWithImage(cleanup, { ...kind, command }));
});
after(() => cleanup.run());

const create = (name: string, ...args: readonly string[]): Promise<string> =>
  engineOk(engine, ['create', '--name', name, ...args, image, 'sh', '-c', TELL]);

async function tell(name: string): Promise<string[]> {
  const lines = (await engineOk(engine, ['start', '-a', name])).split('\n');
  return lines.map((line) => line.replace(/\s+/g, ' '));
}

interface Shown {
  readonly Ulimits: readonly { readonly Name: string; readonly Soft: number; readonly Hard: number }[] | null;
  readonly SecurityOpt: readonly string[] | null;
  readonly Init?: boolean;
}

async function shown(name: string): Promise<Shown> {
  const { HostConfig } = await callJson<{ HostConfig: Shown }>(engine.socketPath, 'GET', `/containers/${name}/json`);
  const { Ulimits, SecurityOpt, Init } = HostConfig;
  return { Ulimits: Ulimits?.length === 0 ? null : Ulimits, SecurityOpt, ...(Init === undefined ? {} : { Init }) };
}

async function restart(wanted: readonly string[]): Promise<void> {
  assert.equal(await engine.stop(), 0);
  flags = [...wanted];
  await engine.start();
}

test('limits, privileges and init are those of the options when the container was created', async (t) => {
  const hasInit =
    existsSync('/usr/bin/tini') || existsSync('/usr/bin/tini-static') || existsSync('/usr/bin/docker-init');
  if (!hasInit) t.diagnostic('no init process on this machine');
  const no = hasInit ? [] : ['--init=false'];
  await create('old', ...no);
  await create('own', ...no, '--ulimit', 'nofile=50:60', '--security-opt', 'no-new-privileges=false', '--init=false');
  const old = await tell('old');
  assert.deepEqual(old.slice(0, 4), ['100', '200', '0', 'NoNewPrivs: 1']);
  if (hasInit) assert.notEqual(old[4], 'sh');
  assert.deepEqual((await tell('own')).slice(0, 4), ['50', '60', '0', 'NoNewPrivs: 0']);
  const before = await shown('old');
  assert.deepEqual(before.Ulimits, [
    { Name: 'nofile', Soft: 100, Hard: 200 },
    { Name: 'core', Soft: 0, Hard: 0 },
  ]);
  assert.deepEqual([before.SecurityOpt, before.Init], [['no-new-privileges'], hasInit]);

  await restart(NONE);
  assert.deepEqual(await shown('old'), before);
  assert.deepEqual(await tell('old'), old, 'as it was created');
  await create('new');
  assert.deepEqual(await shown('new'), { Ulimits: null, SecurityOpt: null });
  const [soft, hard, , privileges, init] = await tell('new');
  assert.deepEqual([soft, hard], ['777', '5000'], 'what the daemon was started with, not what Node made of it');
  assert.deepEqual([privileges, init], ['NoNewPrivs: 0', 'sh']);

  await restart(ALL);
  assert.deepEqual((await tell('new')).slice(0, 2), ['777', '5000']);
  assert.deepEqual(await shown('new'), { Ulimits: null, SecurityOpt: null });
  assert.equal(await engineOk(engine, ['run', '--rm', '--init=false', image, 'sh', '-c', 'ulimit -n']), '100');
});

test('a process of exec has the privileges that its container was created with', async () => {
  await restart(ALL);
  const id = await engineOk(engine, ['create', '--init=false', image, 'sleep', '600']);
  await restart(NONE);
  await engineOk(engine, ['start', id]);
  // Soft limits of an exec are raised by some versions of the runtime, whatever they are told.
  assert.equal(
    await engineOk(engine, ['exec', id, 'sh', '-c', 'ulimit -Hn; grep -c "NoNewPrivs:.1" /proc/self/status']),
    '200\n1',
  );
  await engineOk(engine, ['rm', '-f', id]);
});
