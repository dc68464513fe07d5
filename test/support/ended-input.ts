/**
 * Clients whose input ends early: before, at or after the start of its reader. Each form throws when the process does
 * not see the end of its input, when its output does not come, or when a stream stays open.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync, closeSync } from 'node:fs';
import { join } from 'node:path';
import { dockerCli, SHORT_LIVED } from './dockerd.js';
import type { Door } from './doors.js';
import { call, callJson, RawConnection } from './http.js';
import { waitFor } from './wait.js';

export interface Form {
  readonly name: string;
  run(): Promise<void>;
}

/** How long a hang is waited for; nothing here takes long by itself. */
const PATIENCE_MS = 120_000;
/** Ends with its input and says so. */
const READER = ['sh', '-c', 'cat; echo the end'];
const UPGRADE = 'Connection: Upgrade\r\nUpgrade: tcp\r\n';
const WEBSOCKET =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n' +
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
/** When the client ends its side: with the request's last byte, at the head of the reply, or when the process runs. */
const MOMENTS = ['with the request', 'at the reply', 'after the start'] as const;

/** The docker CLI with an input that is empty, that ends at once, or that ends behind a few bytes. */
type CliInput = 'nothing' | '' | 'typed\n';

async function docker(door: Door, args: readonly string[], input: CliInput): Promise<string> {
  const nothing = openSync('/dev/null', 'r');
  const child = spawn(dockerCli(), [...door.cliArgs, ...args], {
    stdio: [input === 'nothing' ? nothing : 'pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...SHORT_LIVED, DOCKER_CONFIG: join(door.engine.dir, 'cli'), DOCKER_CLI_HINTS: 'false' },
  });
  closeSync(nothing);
  let text = '';
  child.stdin?.on('error', () => undefined).end(input === 'nothing' ? '' : input);
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (piece: string) => (text += piece));
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    child.kill('SIGKILL');
  }, PATIENCE_MS);
  await once(child, 'close');
  clearTimeout(timer);
  assert.ok(!isLate, `docker ${args.join(' ')} hangs after ${JSON.stringify(text)}`);
  assert.equal(child.exitCode, 0, text);
  return text;
}

async function create(door: Door, body: object): Promise<string> {
  const json = {
    Image: door.image,
    Cmd: READER,
    OpenStdin: true,
    StdinOnce: true,
    HostConfig: { NetworkMode: 'none' },
    ...body,
  };
  return (await callJson<{ Id: string }>(door.engine.socketPath, 'POST', '/containers/create', { json }, 201)).Id;
}

const start = (door: Door, id: string): Promise<unknown> =>
  callJson(door.engine.socketPath, 'POST', `/containers/${id}/start`, {}, 204);
const remove = (door: Door, id: string): Promise<unknown> =>
  callJson(door.engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204);

/** Commands of the CLI that pass input on. `web` is a running container. */
export function cliForms(door: Door, web: string): Form[] {
  const inputs = [
    ['</dev/null', 'nothing'],
    ['an empty pipe', ''],
    ['a pipe', 'typed\n'],
  ] as const;
  return inputs.flatMap(([how, input]) => {
    const expected = input === 'nothing' ? 'the end\n' : `${input}the end\n`;
    return [
      {
        name: `${door.name}: run -i, ${how}`,
        run: async () =>
          assert.equal(
            await docker(door, ['run', '-i', '--rm', '--network', 'none', door.image, ...READER], input),
            expected,
          ),
      },
      {
        name: `${door.name}: exec -i, ${how}`,
        run: async () => assert.equal(await docker(door, ['exec', '-i', web, ...READER], input), expected),
      },
      {
        name: `${door.name}: start -ai, ${how}`,
        run: async () => {
          const id = await create(door, { AttachStdin: true, AttachStdout: true, AttachStderr: true });
          assert.equal(await docker(door, ['start', '-ai', id], input), expected);
          await remove(door, id);
        },
      },
    ];
  });
}

/** Bare connections: attach and exec, by an upgrade or not, attach over a websocket; with a terminal and without. */
export function rawForms(door: Door, web: string): Form[] {
  const forms: Form[] = [];
  for (const moment of MOMENTS) {
    for (const tty of [false, true]) {
      const suffix = `${tty ? 'with' : 'without'} a terminal, ended ${moment}`;
      for (const [how, headers] of [
        ['upgrade', UPGRADE],
        ['plain', ''],
      ] as const) {
        forms.push({
          name: `${door.name}: exec, ${how}, ${suffix}`,
          run: () => exec(door, web, { moment, tty, headers }),
        });
        forms.push({
          name: `${door.name}: attach, ${how}, ${suffix}`,
          run: () =>
            attach(door, {
              moment,
              tty,
              headers,
              line: (id) => `POST /containers/${id}/attach?stream=1&stdin=1&stdout=1`,
            }),
        });
      }
      forms.push({
        name: `${door.name}: websocket, ${suffix}`,
        run: () =>
          attach(door, {
            moment,
            tty,
            headers: WEBSOCKET,
            line: (id) => `GET /containers/${id}/attach/ws?stream=1&stdin=1&stdout=1`,
          }),
      });
    }
  }
  return forms;
}

interface Case {
  readonly moment: (typeof MOMENTS)[number];
  readonly tty: boolean;
  readonly headers: string;
}

async function exec(door: Door, web: string, { moment, tty, headers }: Case): Promise<void> {
  const json = {
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    Tty: tty,
    Cmd: tty ? ['sleep', '1000'] : READER,
  };
  const { Id } = await callJson<{ Id: string }>(
    door.engine.socketPath,
    'POST',
    `/containers/${web}/exec`,
    { json },
    201,
  );
  const state = (): Promise<{ Running: boolean; ExitCode: number | null; Pid: number }> =>
    callJson(door.engine.socketPath, 'GET', `/exec/${Id}/json`);
  const body = JSON.stringify({ Detach: false, Tty: tty });
  const connection = new RawConnection(await door.connect());
  connection.write(
    `POST /exec/${Id}/start HTTP/1.1\r\nHost: localhost\r\n${headers}Content-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
  );
  if (moment === 'with the request') connection.halfClose();
  await connection.readThrough('\r\n\r\n', PATIENCE_MS);
  if (moment === 'at the reply') connection.halfClose();
  if (moment === 'after the start') {
    await waitFor('the process', async () => (await state()).Running, PATIENCE_MS);
    connection.halfClose();
  }
  const output = (await connection.readToEnd(PATIENCE_MS)).toString();
  connection.close();
  // A process on a terminal knows no end of input, and runs on without its client.
  if (tty) process.kill((await state()).Pid, 'SIGKILL');
  else assert.match(output, /the end\n$/);
  const { ExitCode } = await waitFor(
    'the end of the process',
    async () => {
      const now = await state();
      return !now.Running && now;
    },
    PATIENCE_MS,
  );
  assert.equal(ExitCode, tty ? 137 : 0);
}

async function attach(
  door: Door,
  { moment, tty, headers, line }: Case & { readonly line: (id: string) => string },
): Promise<void> {
  const id = await create(door, { Tty: tty, ...(tty ? { Cmd: ['sleep', '1000'] } : {}) });
  const connection = new RawConnection(await door.connect());
  connection.write(`${line(id)} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`);
  if (moment === 'with the request') connection.halfClose();
  const head = await connection.readThrough('\r\n\r\n', PATIENCE_MS);
  if (moment === 'at the reply') connection.halfClose();
  await start(door, id);
  if (moment === 'after the start') connection.halfClose();
  const output = (await connection.readToEnd(PATIENCE_MS)).toString('latin1');
  connection.close();
  if (!tty) {
    assert.match(output, /the end\n/, head);
    const wait = await call(door.engine.socketPath, 'POST', `/containers/${id}/wait`);
    assert.equal((JSON.parse(wait.text) as { StatusCode: number }).StatusCode, 0);
  }
  await remove(door, id);
}
