/** TLS in front of the API: who gets in, that everything works through it, and that certificates can be replaced. */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:https';
import { connect as connectPlain } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect, type ConnectionOptions } from 'node:tls';
import { Authority, type Certificate, tlsFlags } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { CliSession, dockerOk, type CliOptions } from '../support/cli.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { freePort } from '../support/free-port.js';
import { callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const MIB = 1024 * 1024;
const cleanup = new Cleanup();
let dir: string;
let ca: Authority;
let foreign: Authority;
let server: Certificate;
let client: Certificate;
let image: string;
let engine: Engine;
let port: number;
/** Files that the daemon was started with, to be replaced. */
let files: { ca: string; cert: string; key: string };

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'tls-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  ca = new Authority(dir, 'ca');
  foreign = new Authority(dir, 'foreign');
  server = ca.issueServer();
  client = ca.issue('alice');
  files = { ca: join(dir, 'ca-now.pem'), cert: join(dir, 'cert-now.pem'), key: join(dir, 'key-now.pem') };
  install(ca, server);
  image = SEEDED_IMAGE;
  port = await freePort();
  engine = await Engine.start(
    await withImage(
      engined({
        args: ['-H', `tcp://127.0.0.1:${port}`, ...tlsFlags(files.ca, files)],
      }),
    ),
  );
  cleanup.add(() => engine.close());
});

after(() => cleanup.run());

function install(authority: Authority, { cert, key }: Certificate): void {
  copyFileSync(authority.cert, files.ca);
  copyFileSync(cert, files.cert);
  copyFileSync(key, files.key);
}

function overTls(args: readonly string[], certificate = client): string[] {
  return ['-H', `tcp://127.0.0.1:${port}`, ...tlsFlags(files.ca, certificate), ...args];
}

function tlsOk(args: readonly string[], options: CliOptions = {}): Promise<string> {
  return dockerOk(engine, overTls(args), options);
}

interface Answer {
  readonly text: string;
  readonly protocol: string | null;
  readonly alpn: string | false | null;
}

/** Sends one request with whatever credentials, and gives all that came back: nothing when the daemon refused. */
function ask(target: string, options: ConnectionOptions, to = port): Promise<Answer> {
  return new Promise((resolve) => {
    let text = '';
    let protocol: string | null = null;
    const socket = connect({ host: '127.0.0.1', port: to, rejectUnauthorized: false, ...options }, () => {
      protocol = socket.getProtocol();
    });
    socket.setEncoding('utf8').on('data', (data: string) => (text += data));
    socket.on('error', () => undefined);
    socket.on('close', () => resolve({ text, protocol, alpn: socket.alpnProtocol }));
    socket.write(`${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    socket.setTimeout(10_000, () => socket.destroy(new Error('no answer')));
  });
}

function show({ cert, key }: Certificate): { cert: Buffer; key: Buffer } {
  return { cert: readFileSync(cert), key: readFileSync(key) };
}

describe('with --tlsverify', () => {
  test('docker with a certificate works: run, pipes, a terminal, exec, much output', async () => {
    assert.equal(await tlsOk(['version', '--format', '{{.Server.Os}}']), 'linux');
    assert.equal(await tlsOk(['run', '--rm', image, 'echo', 'hello']), 'hello');
    // The end of stdin has to get through, and what comes after it back.
    assert.equal(
      await tlsOk(['run', '--rm', '-i', image, 'sh', '-c', 'cat; echo end'], { input: 'line\n' }),
      'line\nend',
    );
    const bytes = 20 * MIB;
    assert.equal((await tlsOk(['run', '--rm', image, 'head', '-c', String(bytes), '/dev/zero'])).length, bytes);
    assert.equal(Number(await tlsOk(['run', '--rm', '-i', image, 'wc', '-c'], { input: 'x'.repeat(bytes) })), bytes);

    const session = new CliSession(engine, overTls(['run', '--rm', '-it', '--name', 'term', image, 'sh']), {
      terminal: { rows: 30, columns: 100 },
    });
    await session.output(/# /);
    session.write('stty size; echo $((40 + 2))\n');
    await session.output(/30 100\r\n42/);
    const inside = new CliSession(
      engine,
      overTls(['exec', '-it', 'term', 'sh', '-c', 'tty && read x && echo "<$x>"']),
      { terminal: { rows: 20, columns: 80 } },
    );
    await inside.output(/pts/);
    inside.write('word\n');
    await inside.output(/<word>/);
    assert.equal((await inside.ended()).status, 0);
    session.write('exit 3\n');
    assert.equal((await session.ended()).status, 3);
  });

  test('who has no good certificate never reaches a handler, whatever the version of TLS', async () => {
    const intruders: Record<string, ConnectionOptions> = {
      none: {},
      foreign: show(foreign.issue('mallory')),
      expired: show(ca.issue('late', { isExpired: true })),
      'wrong purpose': show(ca.issue('server', { usage: 'serverAuth' })),
      'foreign with our authority beside it': { ...show(foreign.issue('mallory')), ca: readFileSync(ca.cert) },
    };
    for (const [name, credentials] of Object.entries(intruders)) {
      for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
        const { text } = await ask(`POST /volumes/create?by=${encodeURIComponent(name)}`, {
          ...credentials,
          maxVersion,
        });
        assert.equal(text, '', `${name} with ${maxVersion}`);
      }
    }
    const { Volumes } = await callJson<{ Volumes: unknown[] }>(engine.socketPath, 'GET', '/volumes');
    assert.deepEqual(Volumes, []);
    const plain = connectPlain(port, '127.0.0.1');
    plain.on('error', () => undefined);
    let received = '';
    plain.setEncoding('latin1').on('data', (data: string) => (received += data));
    plain.write('GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(plain, 'close');
    assert.doesNotMatch(received, /OK/);
    assert.match((await ask('GET /_ping', show(client))).text, /^HTTP\/1\.1 200 OK[\s\S]*OK$/);
  });

  test('curl and openssl without a certificate are refused, curl with one is served', async () => {
    const run = (program: string, args: readonly string[], input = ''): Promise<{ status: number; output: string }> =>
      new Promise((resolve) => {
        const child = execFile(program, args, { timeout: 20_000 }, (error, stdout, stderr) =>
          resolve({ status: error ? Number(error.code ?? -1) : 0, output: stdout + stderr }),
        );
        child.stdin?.end(input);
      });
    const curl = ['-sS', '--cacert', ca.cert, `https://127.0.0.1:${port}/_ping`];
    assert.notEqual((await run('curl', curl)).status, 0);
    assert.deepEqual(await run('curl', [...curl, '--cert', client.cert, '--key', client.key]), {
      status: 0,
      output: 'OK',
    });
    const shaken = await run(
      'openssl',
      ['s_client', '-connect', `127.0.0.1:${port}`, '-CAfile', ca.cert, '-quiet', '-ign_eof'],
      'GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    );
    assert.match(shaken.output, /certificate required/);
    assert.doesNotMatch(shaken.output, /HTTP\/1\.1/);
  });

  test('TLS before 1.2 and other protocols than HTTP/1.1 are refused', async () => {
    const old: ConnectionOptions = {
      ...show(client),
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    };
    assert.deepEqual(await ask('GET /_ping', old), { text: '', protocol: null, alpn: null });
    assert.equal((await ask('GET /_ping', { ...show(client), ALPNProtocols: ['h2'] })).text, '');
    const both = await ask('GET /_ping', { ...show(client), ALPNProtocols: ['h2', 'http/1.1'] });
    assert.equal(both.alpn, 'http/1.1');
    assert.match(both.text, /OK$/);
  });

  test('handshakes that never end hold up nobody, and only so many are waited for', async () => {
    const idlers = Array.from({ length: 1100 }, () => connectPlain(port, '127.0.0.1'));
    const ended = new Set<number>();
    idlers.forEach(
      (idler, i) =>
        void idler
          .on('error', () => undefined)
          .once('close', () => ended.add(i))
          .resume(),
    );
    await Promise.all(idlers.map((idler) => once(idler, 'connect')));
    assert.equal(await tlsOk(['version', '--format', '{{.Server.Os}}']), 'linux');
    await waitFor('the oldest to be ended', () => ended.size >= 100);
    for (const idler of idlers) idler.destroy();
  });

  test('one connection serves many requests, also at once with others', async () => {
    const { Agent } = await import('node:https');
    const agent = new Agent({ keepAlive: true, maxSockets: 8, ...show(client), ca: readFileSync(ca.cert) });
    const ping = (): Promise<number> =>
      new Promise((resolve, reject) => {
        request({ host: '127.0.0.1', port, path: '/_ping', agent }, (reply) =>
          reply.resume().once('end', () => resolve(reply.statusCode ?? 0)),
        )
          .once('error', reject)
          .end();
      });
    const statuses = await Promise.all(Array.from({ length: 200 }, ping));
    assert.ok(statuses.every((status) => status === 200));
    agent.destroy();
  });
});

test('on SIGHUP new files count for new connections; bad files change nothing and are reported', async () => {
  interface View {
    readonly lastReload: {
      readonly ok: boolean;
      readonly message: string;
      readonly time: string;
      readonly entries: readonly { readonly key: string; readonly verdict: string }[];
    } | null;
  }
  const lastReload = async (): Promise<View['lastReload']> =>
    (await callJson<View>(engine.socketPath, 'GET', '/engine/config')).lastReload;
  const hangUp = async (): Promise<NonNullable<View['lastReload']>> => {
    const before = (await lastReload())?.time;
    process.kill(engine.pid, 'SIGHUP');
    return waitFor('the reload', async () => {
      const last = await lastReload();
      return last !== null && last.time !== before && last;
    });
  };
  const newCa = new Authority(dir, 'new-ca');
  const newServer = newCa.issueServer();
  const newClient = newCa.issue('bob');

  // A key of another certificate, and a file that is none.
  copyFileSync(newServer.key, files.key);
  const mismatched = await hangUp();
  assert.equal(mismatched.ok, false);
  assert.deepEqual(
    mismatched.entries.map(({ key, verdict }) => [key, verdict]),
    [['tlskey', 'invalid']],
  );
  assert.match(mismatched.message, /key-now\.pem is not the key of the certificate in tlscert .*cert-now\.pem/);
  writeFileSync(files.cert, 'nonsense');
  assert.match((await hangUp()).message, /tlscert .*cert-now\.pem holds no PEM certificate/);
  assert.match((await ask('GET /_ping', show(client))).text, /OK$/);

  const open = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...show(client) });
  await once(open, 'secureConnect');
  install(newCa, newServer);
  const replaced = await hangUp();
  assert.deepEqual(
    [replaced.ok, replaced.entries.map(({ key, verdict }) => [key, verdict])],
    [true, [['tlscert', 'applied']]],
  );
  assert.match((await ask('GET /_ping', show(newClient))).text, /OK$/);
  assert.equal((await ask('GET /_ping', show(client))).text, '');
  open.write('GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.match(String((await once(open, 'data'))[0]), /^HTTP\/1\.1 200/);
  open.destroy();
  install(ca, server);
  assert.equal((await hangUp()).ok, true);
});

test('without --tlsverify, --tls serves every client, from 1.0 on when that is allowed', async () => {
  const plainTls = await freePort();
  const config = join(dir, 'old.json');
  writeFileSync(config, JSON.stringify({ 'tls-min-version': '1.0' }));
  const other = await Engine.start(
    engined({
      args: [
        '-H',
        `tcp://127.0.0.1:${plainTls}`,
        '--tls',
        '--tlscert',
        server.cert,
        '--tlskey',
        server.key,
        '--config-file',
        config,
      ],
    }),
  );
  try {
    assert.match((await ask('GET /_ping', {}, plainTls)).text, /OK$/);
    const old = await ask(
      'GET /_ping',
      { minVersion: 'TLSv1', maxVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' },
      plainTls,
    );
    assert.equal(old.protocol, 'TLSv1');
    assert.match(old.text, /OK$/);
  } finally {
    await other.close();
  }
});

test('what a container prints while the daemon ends reaches its client over TLS, to the last byte', async () => {
  const other = await freePort();
  const own = await Engine.start(
    await withImage(engined({ args: ['-H', `tcp://127.0.0.1:${other}`, ...tlsFlags(ca.cert, server)] })),
  );
  try {
    const id = await dockerOk(own, [
      'run',
      '-d',
      image,
      'sh',
      '-c',
      `trap 'head -c ${MIB} /dev/zero; echo end; exit' TERM; echo ready; while :; do sleep 0.1; done`,
    ]);
    const socket = connect({ host: '127.0.0.1', port: other, rejectUnauthorized: false, ...show(client) });
    let text = '';
    socket.setEncoding('latin1').on('data', (data: string) => (text += data));
    const ended = once(socket, 'end');
    const target = `/containers/${id}/attach?stream=1&stdout=1&logs=1`;
    socket.write(`POST ${target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n`);
    await waitFor('the container to be ready', () => text.includes('ready'));
    await own.stop();
    await ended;
    assert.ok(text.length > MIB, `${text.length} bytes`);
    assert.match(text.slice(-20), /end\n$/);
    socket.destroy();
  } finally {
    await own.close();
  }
});

test('files that are missing, damaged or do not belong together end the start with their names', async () => {
  const cases: [args: string[], env: NodeJS.ProcessEnv, message: RegExp][] = [
    [
      ['--tlsverify', '--tlscacert', ca.cert, '--tlscert', join(dir, 'none.pem'), '--tlskey', server.key],
      {},
      /tlscert: .*none\.pem does not exist/,
    ],
    [
      ['--tls', '--tlscert', server.cert, '--tlskey', client.key],
      {},
      /tlskey .* is not the key of the certificate in tlscert/,
    ],
    [
      ['--tlsverify', '--tlscacert', server.key, '--tlscert', server.cert, '--tlskey', server.key],
      {},
      /tlscacert .* holds no PEM certificate/,
    ],
    [['--tls'], { ENGINE_CERT_PATH: dir }, new RegExp(`tlscert ${dir}/cert\\.pem cannot be read: ENOENT`)],
    [
      [],
      { ENGINE_TLS_VERIFY: '1', ENGINE_CERT_PATH: '/nonexistent' },
      /tlscert \/nonexistent\/cert\.pem cannot be read: ENOENT/,
    ],
  ];
  for (const [args, env, message] of cases) {
    const kind = engined({ args });
    const home = await mkdtemp(join(dir, 'start-'));
    const [program = '', ...rest] = kind.command(home, join(home, 'engine.sock'));
    const child = spawn(program, [...rest, '-H', 'tcp://127.0.0.1:0'], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let output = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
    const [code] = (await once(child, 'close')) as [number];
    assert.equal(code, 1, output);
    assert.match(output, message);
  }
});
