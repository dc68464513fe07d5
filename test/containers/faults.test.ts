/**
 * Faults in every state of the actors of containers, execs and health checks, under load: each command is answered, the
 * daemon's records agree with the running processes, and nothing is left. FAULTS_COUNT=1000 takes some minutes;
 * FAULTS_SEED gives another course.
 */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, type Reply } from '../support/http.js';
import { randomNumbers } from '../support/random-numbers.js';
import { waitFor } from '../support/wait.js';

const COUNT = Number(process.env['FAULTS_COUNT'] ?? 25);
const SEED = Number(process.env['FAULTS_SEED'] ?? 1);
const CLIENTS = 4;
const ANSWER_MS = 120_000;
const COMMANDS = ['sleep 1000', 'sleep 0.1; exit 3', 'trap "exit 7" TERM; sleep 1000 & wait', 'exit 0'] as const;

const cleanup = new Cleanup();
const armed = join(fileURLToPath(new URL('.', import.meta.url)), `faults-${process.pid}`);
const main = fileURLToPath(new URL('../support/faulty-main.js', import.meta.url));
const kind = engined({
  main,
  args: ['--ip-forward-no-drop'],
  env: {
    FAULTS_COUNT: String(COUNT),
    FAULTS_SEED: String(SEED),
    FAULTS_KINDS: 'container,exec,health',
    FAULTS_HANGS: '1',
    FAULTS_ARMED: armed,
  },
});
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(armed, { force: true }));
  chmodSync(main, 0o755);
  ({ engine, image } = await startEngineWithImage(cleanup, kind));
});
after(() => cleanup.run());

interface Listed {
  readonly Id: string;
  readonly State: { readonly Status: string; readonly Pid: number };
}

const faults = (): string[] =>
  existsSync(armed)
    ? readFileSync(armed, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
    : [];
const history: string[] = [];

const told = (name: string): string =>
  [
    'faults:',
    ...faults().slice(-30),
    'commands:',
    ...history.filter((line) => line.includes(name)).slice(-30),
    'its log ends:',
    engine.log.slice(-4000),
  ].join('\n');

/** A command, whose answer must come, whatever it is. */
async function say(method: string, path: string, json?: unknown): Promise<Reply> {
  const begun = Date.now();
  const line = `${new Date().toISOString()} ${method} ${path}`;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new Error(
            `no answer to ${line}; faults:\n${faults().slice(-30).join('\n')}\n` +
              `commands:\n${history.slice(-40).join('\n')}\n` +
              `its log ends:\n${engine.log.slice(-6000)}`,
          ),
        ),
      ANSWER_MS,
    );
  });
  try {
    const reply = await Promise.race([call(engine.socketPath, method, path, json === undefined ? {} : { json }), late]);
    if (method !== 'GET')
      history.push(
        `${line} ${reply.status} ${Date.now() - begun} ms${reply.status < 400 ? '' : ` ${reply.text.slice(0, 200)}`}`,
      );
    return reply;
  } finally {
    clearTimeout(timer);
  }
}

/** Processes in the control group of a container. */
function processesIn(id: string): string[] {
  const root = '/sys/fs/cgroup';
  const groups = [root, ...readdirSync(root).map((name) => join(root, name))].map((dir) =>
    join(dir, kind.mark, id, 'cgroup.procs'),
  );
  return groups.flatMap((path) =>
    existsSync(path)
      ? readFileSync(path, 'utf8')
          .split('\n')
          .filter((pid) => pid !== '')
      : [],
  );
}

/** Checks that the daemon's view of a container agrees with its processes, as soon as no command is under way. */
async function agree(name: string): Promise<void> {
  let seen = '';
  await waitFor(
    () => `${name} to be what the daemon says: ${seen}; ${told(name)}`,
    async () => {
      const reply = await say('GET', `/containers/${name}/json`);
      if (reply.status === 404) return true;
      const { Id, State } = JSON.parse(reply.text) as Listed;
      let running: string[] = [];
      try {
        running = processesIn(Id);
      } catch {
        return false;
      }
      seen = `${State.Status} ${State.Pid}, processes ${running.join(' ')}`;
      return State.Status === 'running' || State.Status === 'paused'
        ? running.includes(String(State.Pid))
        : State.Status === 'restarting' || running.length === 0;
    },
    ANSWER_MS,
    50,
  );
}

async function client(number: number): Promise<void> {
  const random = randomNumbers(SEED * 1000 + number);
  const pick = <T>(items: readonly T[]): T => items[random(items.length)] as T;
  for (let round = 0; faults().length < COUNT; round++) {
    const name = `c${number}-${round}`;
    const to = `/containers/${name}`;
    const steps: (() => Promise<unknown>)[] = [
      () => say('POST', `${to}/start`),
      () => say('POST', `${to}/start`),
      () => say('POST', `${to}/stop?t=0`),
      () => say('POST', `${to}/restart?t=0`),
      () => say('POST', `${to}/kill`),
      () => say('POST', `${to}/pause`),
      () => say('POST', `${to}/unpause`),
      () =>
        say('POST', `${to}/update`, {
          RestartPolicy: { Name: pick(['no', 'always', 'on-failure']), MaximumRetryCount: 0 },
        }),
      () => say('POST', `/networks/bridge/${pick(['connect', 'disconnect'])}`, { Container: name }),
      async () => {
        const exec = await say('POST', `${to}/exec`, {
          Cmd: pick([['sleep', '0.1'], ['sleep', '1000'], ['true']]),
          AttachStdout: true,
        });
        if (exec.status !== 201) return;
        const { Id } = JSON.parse(exec.text) as { Id: string };
        await say('POST', `/exec/${Id}/start`, { Detach: random(3) > 0 && exec.text !== '' });
      },
    ];
    const created = await say('POST', `/containers/create?name=${name}`, {
      Image: image,
      Cmd: ['sh', '-c', pick(COMMANDS)],
      Healthcheck: { Test: ['CMD', 'true'], Interval: 200_000_000 },
      HostConfig: {
        NetworkMode: random(4) === 0 ? 'bridge' : 'none',
        RestartPolicy: { Name: pick(['no', 'no', 'always']), MaximumRetryCount: 0 },
      },
    });
    // A fault is the daemon's, and it says so.
    assert.ok(created.status === 201 || created.status >= 500, created.text);
    const under = Array.from({ length: 3 + random(5) }, () => pick(steps));
    // Some wait for each other, some do not. An exec that sleeps ends with its container at the latest.
    let attached: Promise<unknown>[] = [];
    for (const step of under) {
      const answered = step();
      attached.push(answered);
      if (random(2) === 0) await Promise.race([answered, new Promise((resolve) => setTimeout(resolve, 300))]);
    }
    await say('POST', `${to}/kill`);
    await say('POST', `${to}/stop?t=0`);
    await Promise.all(attached);
    attached = [];
    await agree(name);
    await waitFor(
      () => `${name} to be removed; ${told(name)}`,
      async () => [204, 404].includes((await say('DELETE', `${to}?force=1&v=1`)).status),
      ANSWER_MS,
      50,
    );
  }
}

test(`${COUNT} faults, seed ${SEED}`, { timeout: 3_600_000 }, async () => {
  writeFileSync(armed, '');
  await Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)));
  const left = await callJson<Listed[]>(engine.socketPath, 'GET', '/containers/json?all=1');
  for (const { Id } of left) assert.equal((await say('DELETE', `/containers/${Id}?force=1&v=1`)).status, 204);
  // The daemon itself must report no actor that is left, and no command without an answer.
  const dump = async (): Promise<string> => {
    const before = engine.log.length;
    process.kill(engine.pid, 'SIGUSR1');
    const path = await waitFor('the state', () => /path=(\S+\.json)/.exec(engine.log.slice(before))?.[1]);
    return readFileSync(path, 'utf8');
  };
  let shown = '';
  await waitFor(
    () => `nobody to be left: ${shown}`,
    async () => {
      shown = await dump();
      const { asks, actors } = JSON.parse(shown) as { asks: number; actors: Record<string, unknown[]> };
      return asks === 0 && ['containers', 'execs', 'healthChecks'].every((name) => actors[name]?.length === 0);
    },
    60_000,
    500,
  );
  assert.deepEqual(
    engine.leftovers().filter((item) => item.startsWith('mount') && item.includes('merged')),
    [],
  );
});
