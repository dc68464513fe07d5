/** Where the daemon listens: every form of address, what is wrong with others, and who is kept out of open ones. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { connect, createServer, type AddressInfo } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { attempt } from '../support/engine-commands.js';
import { load, refused } from '../support/configurations.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { freePort } from '../support/free-port.js';
import { call, callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const INSECURE = /Listening without --tlsverify: everybody who reaches that address has the rights of root/;
/** A group of this machine other than that of root. */
const [GROUP = '', , GID = ''] =
  /^[^:]+:[^:]*:(?!0:)(\d+):/m.exec(readFileSync('/etc/group', 'utf8'))?.[0].split(':') ?? [];

const cleanup = new Cleanup();
let dir: string;

function assertOfGroup({ socketPath }: Engine): void {
  const { mode, gid } = statSync(socketPath);
  assert.deepEqual([mode & 0o777, gid], [0o660, Number(GID)]);
}

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'addresses-'));
  cleanup.add(() => rm(dir, { recursive: true }));
});

after(() => cleanup.run());

interface Answer {
  readonly status: number;
  readonly text: string;
}

function get(
  host: string,
  port: number,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host, port, path, headers, agent: false }, (reply) => {
      let text = '';
      reply.setEncoding('utf8').on('data', (data: string) => (text += data));
      reply.once('end', () => resolve({ status: reply.statusCode ?? 0, text }));
    });
    outgoing.once('error', reject);
    outgoing.end();
  });
}

/** Runs the daemon with these flags to its end, which is soon. */
async function failedStart(
  args: readonly string[],
  config = '{}',
): Promise<{ readonly code: number; readonly output: string; readonly home: string }> {
  const home = await mkdtemp(join(dir, 'home-'));
  const file = join(home, 'given.json');
  writeFileSync(file, config);
  const [program = '', ...own] = engined().command(home, join(home, 'engine.sock'));
  const child = spawn(program, [...own.toSpliced(own.indexOf('--host'), 2), '--config-file', file, ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), 40_000);
  let output = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
  const [code] = (await once(child, 'close')) as [number];
  clearTimeout(timer);
  return { code, output, home };
}

test('addresses of every form are served at once, each one once, sockets for the group that is named', async () => {
  const [plain, short, prefixed, six] = [await freePort(), await freePort(), await freePort(), await freePort()];
  const second = join(dir, 'second.sock');
  const hosts = [
    `tcp://127.0.0.1:${plain}`,
    `:${short}`,
    `tcp://localhost:${prefixed}/some/path/`,
    `tcp://[::1]:${six}`,
    `unix://${second}`,
    `127.0.0.1:${plain}`,
    `tcp://127.0.0.2:${plain}`,
    '',
  ];
  const engine = await Engine.start(engined({ args: ['--group', GROUP, ...hosts.flatMap((host) => ['-H', host])] }));
  try {
    assertOfGroup(engine);
    // They are opened in their order, and the engine counts as started when the first one answers.
    const last = await waitFor('the last address', () => call(second, 'GET', '/_ping').catch(() => undefined));
    assert.equal(last.text, 'OK');
    // All of them are of this machine alone.
    assert.doesNotMatch(engine.log, INSECURE);
    for (const [host, port] of [
      ['127.0.0.1', plain],
      ['127.0.0.2', plain],
      ['127.0.0.1', short],
      ['::1', six],
    ] as const)
      assert.deepEqual(await get(host, port, '/_ping'), { status: 200, text: 'OK' });
    // Below the path, and nowhere else.
    for (const path of ['/some/path/_ping', '/some/path/v1.44/_ping'])
      assert.equal((await get('localhost', prefixed, path)).text, 'OK');
    for (const path of ['/_ping', '/some/pathological/_ping', '/some/path', '/some'])
      assert.equal((await get('localhost', prefixed, path)).status, 404, path);
    const { stdout } = await attempt(engine, [
      '-H',
      `tcp://localhost:${prefixed}/some/path`,
      'version',
      '--format',
      '{{.Server.Os}}',
    ]);
    assert.equal(stdout.trim(), 'linux');
  } finally {
    await engine.close();
  }
  assert.ok(!existsSync(second), 'the socket is removed at the exit');
});

test('addresses that cannot be ones are refused with what is wrong, as flag and in the file', async () => {
  const bad: [host: string, message: RegExp][] = [
    ['http://127.0.0.1:2375', /invalid bind address format: http:/],
    ['nothing', /invalid bind address format: nothing/],
    ['unix://relative.sock', /the socket path must be absolute/],
    ['tcp://127.0.0.1:99999', /invalid port 99999/],
    ['tcp://127.0.0.1:port', /not <host>:<port>/],
    ['tcp://::1:5', /not <host>:<port>/],
    ['tcp://a b:1', /invalid host a b/],
    ['tcp://127.0.0.1:1/a?b', /invalid path \/a\?b/],
    ['tcp://127.0.0.1:1/../x', /invalid path/],
    ['npipe:////./pipe/engine', /only available on Windows/],
  ];
  for (const [host, message] of bad) {
    assert.match(
      refused(() => load({}, ['-H', host])),
      message,
    );
    assert.match(
      refused(() => load({ hosts: [host] })),
      message,
    );
  }
  // Each is refused as it is read; that the daemon then ends with these words is the same for all.
  const [[host, message] = assert.fail()] = bad;
  for (const { code, output } of [
    await failedStart(['-H', host]),
    await failedStart([], JSON.stringify({ hosts: [host] })),
  ]) {
    assert.equal(code, 1, output);
    assert.match(output, message);
  }
});

test('an address that is taken or of another machine ends the start and takes the other sockets away', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  const beside = join(dir, 'beside.sock');
  const long = `/${'x'.repeat(120)}`;
  const cases: [host: string, message: RegExp][] = [
    [`tcp://127.0.0.1:${port}`, new RegExp(`cannot listen on 127\\.0\\.0\\.1:${port}: .*EADDRINUSE`)],
    ['tcp://192.0.2.1:4000', /cannot listen on 192\.0\.2\.1:4000: .*EADDRNOTAVAIL/],
    ['tcp://name.invalid:4000', /cannot listen on name\.invalid:4000: /],
    [`unix://${dir}/missing/x.sock`, /cannot listen on .*missing\/x\.sock: .*ENOENT/],
    [`unix://${long}`, /longer than 107 bytes/],
  ];
  for (const [host, message] of cases) {
    const { code, output } = await failedStart(['--tls=false', '-H', `unix://${beside}`, '-H', host]);
    assert.equal(code, 1, output);
    assert.match(output, message);
    assert.ok(!existsSync(beside), `${host} left a socket`);
  }
  taken.close();
});

test('a missing group is an error when it was named', async () => {
  const { code, output } = await failedStart(['--group', 'no-such-group', '-H', `unix://${dir}/grouped.sock`]);
  assert.equal(code, 1);
  assert.match(output, /group no-such-group not found/);
});

test('a socket is for the default group, replaced after a kill, and refused to others while it is served', async () => {
  const engine = await Engine.start(engined());
  try {
    const { mode, gid } = statSync(engine.socketPath);
    assert.equal(mode & 0o777, 0o660);
    if (!/^engine:/m.test(readFileSync('/etc/group', 'utf8'))) {
      assert.match(engine.log, /the group does not exist: only root can use the unix socket/);
      assert.equal(gid, process.getgid?.());
    }
    await engine.stop('SIGKILL');
    assert.ok(existsSync(engine.socketPath));
    await engine.start();
    const { code, output } = await failedStart(['-H', `unix://${engine.socketPath}`]);
    assert.equal(code, 1, output);
    assert.match(output, /another process is listening there/);
    assert.equal((await call(engine.socketPath, 'GET', '/_ping')).text, 'OK');
    const file = join(dir, 'plain-file');
    writeFileSync(file, 'kept');
    assert.match((await failedStart(['-H', `unix://${file}`])).output, /exists and is not a socket/);
    assert.equal(readFileSync(file, 'utf8'), 'kept');
  } finally {
    await engine.close();
  }
});

test('the group may be a number; a socket file that somebody put in place of ours survives our exit', async () => {
  const path = join(dir, 'replaced.sock');
  const engine = await Engine.start(engined({ args: ['--group', GID, '-H', `unix://${path}`] }));
  assertOfGroup(engine);
  // It is opened after the socket that answers already, and recognized again only once it answers, too.
  const answer = async (): Promise<boolean> =>
    (await call(path, 'GET', '/_ping').catch(() => undefined))?.status === 200;
  await waitFor('the second socket', answer);
  await rm(path);
  const other = createServer().listen(path);
  await once(other, 'listening');
  await engine.close();
  const probe = connect(path);
  await once(probe, 'connect');
  probe.destroy();
  other.close();
});

describe('a tcp listener without certificates', () => {
  test('on all addresses: a warning that cannot be missed, and a pause unless it is really meant', async () => {
    const port = await freePort();
    const silent = await Engine.start(engined({ args: ['-H', `tcp://0.0.0.0:${port}`] }));
    assert.match(silent.log, INSECURE);
    assert.match(silent.log, /--tls=false/);
    // The others do not wait.
    assert.equal(silent.log.includes('API listens'), false);
    await waitFor('the open address', () => silent.log.includes('API listens'), 30_000);
    const { Warnings } = await callJson<{ Warnings: string[] }>(silent.socketPath, 'GET', '/info');
    assert.ok(
      Warnings.some((warning) => warning.startsWith(`API is accessible on http://0.0.0.0:${port} without encryption.`)),
      Warnings.join('\n'),
    );
    assert.equal((await get('127.0.0.1', port, '/_ping')).status, 200);
    await silent.close();

    for (const args of [['--tls=false'], ['--tlsverify=false']]) {
      const meant = await Engine.start(engined({ args: [...args, '-H', `tcp://[::]:${port}`] }));
      await waitFor('the open address', () => meant.log.includes('API listens'), 30_000);
      assert.match(meant.log, INSECURE);
      assert.doesNotMatch(meant.log, /only after a pause/);
      await meant.close();
    }
  });

  test('a stop during the pause is obeyed', async () => {
    const engine = await Engine.start(engined({ args: ['-H', `tcp://0.0.0.0:${await freePort()}`] }));
    await engine.close();
    assert.doesNotMatch(engine.log, /cannot run/);
  });

  test('pages in a browser are kept out, also with a name of theirs; feature allow-browsers lets them in', async () => {
    const port = await freePort();
    const config = join(dir, 'browsers.json');
    writeFileSync(config, '{}');
    const engine = await Engine.start(engined({ args: ['--config-file', config, '-H', `tcp://127.0.0.1:${port}`] }));
    const pages: Readonly<Record<string, string>>[] = [
      { Origin: 'http://evil.example' },
      { Origin: 'null' },
      { Origin: `http://127.0.0.1:${port}` },
      { 'Sec-Fetch-Site': 'cross-site' },
      { Host: 'evil.example' },
      { Host: `evil.example:${port}` },
      { Host: 'localhost.evil.example' },
      { Host: '127.0.0.1.evil.example' },
    ];
    const clients: Readonly<Record<string, string>>[] = [
      {},
      { Host: `localhost:${port}` },
      { Host: 'LOCALHOST' },
      { Host: `[::1]:${port}` },
      { Host: hostname() },
      { 'Sec-Fetch-Site': 'none' },
    ];
    try {
      for (const headers of pages) {
        const { status, text } = await get('127.0.0.1', port, '/_ping', headers);
        assert.equal(status, 403, JSON.stringify(headers));
        assert.match(text, /^\{"message":"request refused: .*allow-browsers/);
        // Requests that hijack are read elsewhere.
        const hijack = connect(port, '127.0.0.1');
        const lines = Object.entries({ Host: 'localhost', ...headers })
          .map(([name, value]) => `${name}: ${value}\r\n`)
          .join('');
        hijack.write(`POST /containers/x/attach HTTP/1.1\r\n${lines}Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n`);
        assert.match(String((await once(hijack, 'data'))[0]), /^HTTP\/1\.1 403 /);
        hijack.destroy();
      }
      for (const headers of clients)
        assert.equal((await get('127.0.0.1', port, '/_ping', headers)).status, 200, JSON.stringify(headers));
      assert.equal((await call(engine.socketPath, 'GET', '/_ping', { headers: { Host: 'anything' } })).status, 200);

      writeFileSync(config, '{"features":{"allow-browsers":true}}');
      await callJson(engine.socketPath, 'POST', '/engine/config/reload');
      for (const headers of pages)
        assert.equal((await get('127.0.0.1', port, '/_ping', headers)).status, 200, JSON.stringify(headers));
    } finally {
      await engine.close();
    }
  });
});
