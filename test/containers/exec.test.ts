/** Processes inside running containers: what they inherit, how they are told from outside, and how they end. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { CliSession, docker } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { removeContainers } from '../support/container-removal.js';
import { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, RawConnection, type Reply } from '../support/http.js';
import { processesOf } from '../support/leftovers.js';
import { waitFor } from '../support/wait.js';
import { withImage } from '../support/seed.js';

interface ExecInspection {
  readonly ID: string;
  readonly Running: boolean;
  readonly ExitCode: number | null;
  readonly ProcessConfig: {
    readonly tty: boolean;
    readonly entrypoint: string;
    readonly arguments: string[];
    readonly privileged: boolean;
    readonly user?: string;
  };
  readonly OpenStdin: boolean;
  readonly OpenStdout: boolean;
  readonly OpenStderr: boolean;
  readonly CanRemove: boolean;
  readonly ContainerID: string;
  readonly DetachKeys: string;
  readonly Pid: number;
}

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});

after(() => cleanup.run());

afterEach(() => removeContainers(engine));

function ok(...args: string[]): Promise<string> {
  return engineOk(engine, args);
}

function post(path: string, json: unknown): Promise<Reply> {
  return call(engine.socketPath, 'POST', path, { json });
}

async function create(body: Readonly<Record<string, unknown>>): Promise<string> {
  return (
    await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/web/exec', {
      json: { AttachStdout: true, AttachStderr: true, ...body },
    })
  ).Id;
}

function inspect(id: string): Promise<ExecInspection> {
  return callJson<ExecInspection>(engine.socketPath, 'GET', `/exec/${id}/json`);
}

function ended(id: string): Promise<ExecInspection> {
  return waitFor('the end of the exec', async () => {
    const found = await inspect(id);
    return !found.Running && found.ExitCode !== null && found;
  });
}

test('environment, user, groups, directory and privileges, inherited or its own', async () => {
  await ok(
    'run',
    '-d',
    '--name',
    'web',
    '--env',
    'A=1',
    '--env',
    'B=2',
    '--user',
    'daemon',
    '--workdir',
    '/var',
    image,
    'sleep',
    '1000',
  );
  assert.equal(
    await ok('exec', 'web', 'sh', '-c', 'echo $A $B $(id -un) $(pwd) ${TERM:-none} $HOSTNAME'),
    `1 2 daemon /var none ${(await ok('ps', '-q')).trim()}`,
  );
  assert.equal(
    await ok(
      'exec',
      '--env',
      'B=3',
      '--env',
      'C=4',
      '--user',
      '0',
      '--workdir',
      '/tmp',
      'web',
      'sh',
      '-c',
      'echo $A $B $C $(id -un) $(pwd)',
    ),
    '1 3 4 root /tmp',
  );
  assert.equal(
    await ok('exec', '--user', '1234:nogroup', 'web', 'sh', '-c', 'echo $(id -u) $(id -gn)'),
    '1234 nogroup',
  );
  // The original of this age gives more than this host lets it have.
  if (engine.name === 'engined')
    assert.notEqual(
      await ok('exec', '--user', '0', '--privileged', 'web', 'grep', 'CapEff', '/proc/self/status'),
      await ok('exec', '--user', '0', 'web', 'grep', 'CapEff', '/proc/self/status'),
    );
  const terminal = await docker(engine, ['exec', '-t', 'web', 'sh', '-c', 'echo $TERM; stty size; test -t 1'], {
    terminal: { rows: 33, columns: 111 },
  });
  assert.equal(terminal.status, 0, terminal.stdout);
  // The original of this age has the size only a moment later.
  assert.match(terminal.stdout, engine.name === 'engined' ? /^xterm\s+33 111\s/ : /^xterm\s/);
  const nobody = await docker(engine, ['exec', '--user', 'stranger', 'web', 'true']);
  assert.notEqual(nobody.status, 0);
  assert.match(nobody.stderr + nobody.stdout, /unable to find user stranger: no matching entries in passwd file/);
  for (const [user, text] of [
    ['stranger', 'unable to find user stranger: no matching entries in passwd file'],
    ['root:strangers', 'unable to find group strangers: no matching entries in group file'],
    ['-1', 'uids and gids must be in range 0-2147483647'],
  ] as const) {
    const reply = await call(engine.socketPath, 'POST', '/containers/web/exec', {
      json: { Cmd: ['true'], User: user },
    });
    assert.deepEqual([reply.status, JSON.parse(reply.text)], [400, { message: text }]);
  }
});

test('inspect before, during and after', async () => {
  const container = await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const id = await create({
    Cmd: ['sh', '-c', 'sleep 0.7; exit 9'],
    AttachStdin: true,
    User: 'daemon',
    Privileged: engine.name === 'engined',
    DetachKeys: 'ctrl-a',
  });
  const before = await inspect(id);
  assert.deepEqual(
    { ...before, Pid: 0 },
    {
      ID: id,
      Running: false,
      ExitCode: null,
      ProcessConfig: {
        tty: false,
        entrypoint: 'sh',
        arguments: ['-c', 'sleep 0.7; exit 9'],
        privileged: engine.name === 'engined',
        user: 'daemon',
      },
      OpenStdin: true,
      OpenStdout: true,
      OpenStderr: true,
      CanRemove: false,
      ContainerID: container,
      DetachKeys: Buffer.from([1]).toString('base64'),
      Pid: 0,
    },
  );
  assert.equal((await post(`/exec/${id}/start`, { Detach: true })).status, 200);
  const during = await inspect(id);
  assert.deepEqual([during.Running, during.ExitCode], [true, null]);
  assert.ok(existsSync(`/proc/${during.Pid}`));
  assert.deepEqual((await callJson<{ ExecIDs: string[] }>(engine.socketPath, 'GET', '/containers/web/json')).ExecIDs, [
    id,
  ]);
  assert.equal((await ended(id)).ExitCode, 9);
  assert.equal((await post(`/exec/${id}/start`, { Detach: true })).status, 409, 'once is enough');
  await waitFor(
    'it to be off the list',
    async () =>
      (await callJson<{ ExecIDs: string[] | null }>(engine.socketPath, 'GET', '/containers/web/json')).ExecIDs === null,
  );
});

test('events of an exec', async () => {
  const since = Math.floor(Date.now() / 1000) - 1;
  const container = await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  await attempt(engine, ['exec', 'web', 'true']);
  await attempt(engine, ['exec', 'web', 'sh', '-c', 'exit 5']);
  const filters = JSON.stringify({ event: ['exec_create', 'exec_start', 'exec_die'], container: [container] });
  const told = (
    await call(
      engine.socketPath,
      'GET',
      `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}&filters=${encodeURIComponent(filters)}`,
    )
  ).text;
  const events = told
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { Action: string; Actor: { Attributes: Record<string, string> } });
  assert.deepEqual(
    events.map(({ Action }) => Action),
    ['true ', 'sh -c exit 5'].flatMap((command) => [`exec_create: ${command}`, `exec_start: ${command}`, 'exec_die']),
  );
  const ids = new Set(events.slice(3).map(({ Actor }) => Actor.Attributes['execID']));
  assert.equal(ids.size, 1);
  assert.equal(events.at(-1)?.Actor.Attributes['exitCode'], '5');
  assert.equal(events.at(-1)?.Actor.Attributes['name'], 'web');
});

test('resize reaches the terminal, and is refused before the start', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const id = await create({
    Cmd: ['sh', '-c', 'trap "stty size; exit" WINCH; echo ready; while :; do sleep 0.05; done'],
    Tty: true,
    AttachStdin: true,
  });
  const connection = await RawConnection.open(engine.socketPath);
  const body = JSON.stringify({ Tty: true });
  connection.write(
    `POST /exec/${id}/start HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  assert.match(await connection.readThrough('\r\n\r\n'), /^HTTP\/1.1 101 UPGRADED/);
  await connection.readThrough('ready');
  assert.ok((await call(engine.socketPath, 'POST', `/exec/${id}/resize?h=44&w=55`)).status < 300);
  assert.match((await connection.readToEnd()).toString(), /44 55/);
  const bad = await call(engine.socketPath, 'POST', `/exec/${id}/resize?h=a&w=5`);
  assert.ok(bad.status >= 400, bad.text);
});

test('the detach keys leave the process running', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const goOn = 'while [ ! -e /tmp/left ]; do sleep 0.1; done';
  const session = new CliSession(
    engine,
    ['exec', '-it', '--detach-keys', 'ctrl-x,y', 'web', 'sh', '-c', `echo begun; ${goOn}; exec sleep 1234`],
    { terminal: { rows: 24, columns: 80 } },
  );
  await session.output(/begun/);
  session.write('\u0018y');
  await session.ended();
  // It is told only now that its client has left, and does the next thing.
  await ok('exec', 'web', 'touch', '/tmp/left');
  await waitFor('the process to go on', async () =>
    (await call(engine.socketPath, 'GET', '/containers/web/top')).text.includes('sleep 1234'),
  );
});

test('commands that cannot run give 127 and 126, attached and detached', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  // The original of this age makes no difference between the two.
  assert.equal((await docker(engine, ['exec', 'web', '/no/such'])).status, engine.name === 'engined' ? 127 : 126);
  assert.equal((await docker(engine, ['exec', 'web', '/etc/passwd'])).status, 126);
  assert.equal((await docker(engine, ['exec', '--workdir', '/nowhere', 'web', 'true'])).status > 0, true);
  const id = await create({ Cmd: ['/no/such'] });
  const reply = await post(`/exec/${id}/start`, { Detach: true });
  assert.equal(reply.status, 400, reply.text);
  assert.match(reply.text, /no such file or directory/);
  assert.notEqual((await ended(id)).ExitCode, 0);
});

test('the end of the container is the end of its execs', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const id = await create({ Cmd: ['sleep', '2000'] });
  await post(`/exec/${id}/start`, { Detach: true });
  await ok('kill', 'web');
  assert.equal((await ended(id)).ExitCode, 137);
  assert.equal((await post('/containers/web/exec', { Cmd: ['true'] })).status, 409);
  await ok('rm', 'web');
  assert.equal((await call(engine.socketPath, 'GET', `/exec/${id}/json`)).status, 404);
});

test('what cannot be is refused', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  for (const [body, status, message] of [
    [{}, 400, /No exec command specified/],
    [{ Cmd: [] }, 400, /No exec command specified/],
    [{ Cmd: ['true'], DetachKeys: 'nonsense' }, 400, /Invalid escape keys \(nonsense\) provided/],
  ] as const) {
    const reply = await post('/containers/web/exec', body);
    // The original says 500 for the last one.
    assert.ok(
      reply.status === status || (engine.name === 'dockerd' && reply.status === 500),
      `${reply.status} ${reply.text}`,
    );
    assert.match(reply.text, message);
  }
  for (const [method, path] of [
    ['GET', '/exec/nobody/json'],
    ['POST', '/exec/nobody/start'],
    ['POST', '/exec/nobody/resize?h=1&w=1'],
  ] as const) {
    const reply = await call(engine.socketPath, method, path, method === 'POST' ? { json: {} } : {});
    assert.equal(reply.status, 404, `${path} ${reply.text}`);
    assert.match(reply.text, /No such exec instance: nobody/i);
  }
  await ok('pause', 'web');
  const paused = await post('/containers/web/exec', { Cmd: ['true'] });
  assert.equal(paused.status, 409, paused.text);
  await ok('unpause', 'web');
});

test('many execs at once each get their own output and exit code', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const one = async (index: number): Promise<void> => {
    const command = `echo out ${index}; echo err ${index} >&2; exit ${index}`;
    const { status, stdout, stderr } = await attempt(engine, ['exec', 'web', 'sh', '-c', command]);
    assert.deepEqual({ status, stdout, stderr }, { status: index, stdout: `out ${index}\n`, stderr: `err ${index}\n` });
  };
  await Promise.all(Array.from({ length: 12 }, (_, index) => one(index + 1)));
});

test('an exec needs the shim alone: containerd may be busy', async (t) => {
  if (engine.name === 'dockerd') return t.skip('it asks containerd');
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const containerds = processesOf(engine.dir).filter(({ command }) => /^\S*containerd --config /.test(command));
  assert.equal(containerds.length, 1);
  for (const { pid } of containerds) process.kill(pid, 'SIGSTOP');
  try {
    const told = await attempt(engine, ['exec', 'web', 'sh', '-c', 'echo out; exit 7']);
    assert.deepEqual([told.status, told.stdout], [7, 'out\n']);
    assert.equal((await attempt(engine, ['exec', 'web', 'missing'])).status, 127);
  } finally {
    for (const { pid } of containerds) process.kill(pid, 'SIGCONT');
  }
  // containerd tells these exits, too, and later ones.
  assert.equal((await attempt(engine, ['exec', 'web', 'sh', '-c', 'exit 3'])).status, 3);
  await ok('rm', '-f', 'web');
});

/** The shim keeps 32 exits. So many execs at once made it reap one process a second, when nobody kept them back. */
const MORE_THAN_SHIM_KEEPS = 60;

test('execs that are started in the same moment do not stall one another', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const ids = await Promise.all(Array.from({ length: MORE_THAN_SHIM_KEEPS }, () => create({ Cmd: ['true'] })));
  const replies = await Promise.all(ids.map((id) => post(`/exec/${id}/start`, { Detach: true })));
  assert.deepEqual([...new Set(replies.map(({ status }) => status))], [200]);
  for (const id of ids) assert.equal((await ended(id)).ExitCode, 0);
});

test('an init process that is not installed is said to be missing', async (t) => {
  if (engine.name === 'dockerd') return t.skip('its PATH is not ours to change');
  // All programs of this host but those.
  const path = await mkdtemp(join(tmpdir(), 'engined-path-'));
  cleanup.add(() => rm(path, { recursive: true }));
  for (const dir of (process.env['PATH'] ?? '').split(delimiter).filter((entry) => existsSync(entry))) {
    for (const name of await readdir(dir))
      if (!/^(docker-init|tini.*)$/.test(name)) await symlink(join(dir, name), join(path, name)).catch(() => undefined);
  }
  const bare = await Engine.start(await withImage(engined({ env: { PATH: path } })));
  try {
    const { status, stderr } = await docker(bare, ['run', '--rm', '--init', image, 'true']);
    assert.equal(status, 127);
    assert.match(stderr, /"docker-init": executable file not found in \$PATH/);
  } finally {
    await bare.close();
  }
});
