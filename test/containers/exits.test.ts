/**
 * Exits whose witnesses die: containerd, the shim or the daemon is killed about when containers end, and each exit code
 * must be the true one afterwards. EXITS_COUNT=1000 makes it the long run; ENGINE_TEST_SEED repeats one. The containerd
 * is the one on PATH.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cleanup } from '../support/cleanup.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { KERNEL_TELLS_EXITS } from '../support/kernel-tells-exits.js';
import { processesOf, type ProcessInfo } from '../support/leftovers.js';
import { shimsOf } from '../support/shim-of.js';
import { randomNumbers } from '../support/random-numbers.js';
import { waitFor } from '../support/wait.js';

const COUNT = Number(process.env['EXITS_COUNT'] ?? 16);
const SEED = Number(process.env['ENGINE_TEST_SEED'] ?? Date.now() % 1_000_000);
/** So many containers end at the same time. */
const WIDTH = 4;
/** A kill comes up to so long before the exits or after them. */
const AROUND_MS = 80;
const KILLED = 137;
/** The code of an exit that nobody has seen, as other engines tell it. */
const UNKNOWN = 255;

type Witness = 'containerd' | 'shim' | 'daemon';

/** The deaths of each round, which repeat in this order. */
const DEATHS: readonly (readonly Witness[])[] = [
  ['containerd'],
  ['daemon'],
  ['shim'],
  ['containerd', 'daemon'],
  ['daemon', 'containerd'],
  ['shim', 'containerd'],
];

interface Ending {
  readonly id: string;
  readonly code: number;
}

interface State {
  readonly Status: string;
  readonly ExitCode: number;
  readonly Pid: number;
}

const cleanup = new Cleanup();
const random = randomNumbers(SEED);
const gates = mkdtempSync(join(tmpdir(), 'gates-'));
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(gates, { recursive: true }));
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
});
after(() => cleanup.run());

/** Starts a container that ends, with a code of its own, when the file `go` is in the directory. */
async function start(gate: string): Promise<Ending> {
  const code = 1 + random(120);
  const { Id: id } = await callJson<{ Id: string }>(
    engine.socketPath,
    'POST',
    '/containers/create',
    {
      json: {
        Image: image,
        Cmd: ['sh', '-c', `until [ -e /gate/go ]; do sleep 0.01; done; exit ${code}`],
        HostConfig: { NetworkMode: 'none', Binds: [`${gate}:/gate:ro`] },
      },
    },
    201,
  );
  await callJson(engine.socketPath, 'POST', `/containers/${id}/start`, {}, 204);
  return { id, code };
}

/** Kills the processes that are called so. */
function killProcess(name: RegExp): void {
  killAll(processesOf(engine.dir).filter(({ command }) => name.test(command)));
}

/** Kills processes, which may be gone already. */
function killAll(processes: readonly ProcessInfo[]): void {
  for (const { pid } of processes) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

async function kill(witness: Witness, { id }: Ending): Promise<void> {
  if (witness === 'daemon') await engine.stop('SIGKILL');
  else if (witness === 'containerd') killProcess(/^\S*containerd --config /);
  else killAll(shimsOf(engine.dir, id));
}

/**
 * Returns the other codes that are true of a container whose shim is killed: it is killed then, unless it has ended
 * before, which nobody knows when containerd is gone, too, but the kernel, if it is new enough.
 */
function withoutShim(deaths: readonly Witness[]): number[] {
  if (!deaths.includes('shim')) return [];
  return deaths.includes('containerd') && !KERNEL_TELLS_EXITS ? [KILLED, UNKNOWN] : [KILLED];
}

/** One round: containers end, and witnesses of it die. Returns the exits that are told wrongly. */
async function round(index: number): Promise<string[]> {
  const deaths = DEATHS[index % DEATHS.length] ?? [];
  const gate = join(gates, String(index));
  mkdirSync(gate);
  const endings = await Promise.all(Array.from({ length: WIDTH }, () => start(gate)));
  const [victim] = endings;
  assert.ok(victim);
  const [opensAt, ...killsAt] = [AROUND_MS, ...deaths.map(() => random(2 * AROUND_MS))];
  const opening = sleep(opensAt).then(() => writeFileSync(join(gate, 'go'), ''));
  const killing = deaths.map((witness, at) => sleep(killsAt[at] ?? 0).then(() => kill(witness, victim)));
  await Promise.all([opening, ...killing]);
  if (deaths.includes('daemon')) await engine.start();
  const how = `${deaths.join(', then ')} killed (${killsAt.join(', ')})`;
  return check(endings, how, (ending) => (ending === victim ? withoutShim(deaths) : []));
}

/** Removes containers that have ended. Returns the exits that are told wrongly. */
async function check(
  endings: readonly Ending[],
  how: string,
  othersOf: (ending: Ending) => readonly number[] = () => [],
): Promise<string[]> {
  const wrong = await Promise.all(
    endings.map(async (ending) => {
      const said = await callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${ending.id}/wait`);
      const { State: state } = await inspect(ending);
      const isTrue = [ending.code, ...othersOf(ending)].includes(state.ExitCode);
      if (isTrue && state.Status === 'exited' && said.StatusCode === state.ExitCode) return [];
      const told = `${state.Status} with ${state.ExitCode}, to those who wait ${said.StatusCode}`;
      return [`${how}: ended with ${ending.code}, told: ${told}`];
    }),
  );
  await Promise.all(
    endings.map(({ id }) => callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204)),
  );
  return wrong.flat();
}

function inspect({ id }: Ending): Promise<{ readonly State: State }> {
  return callJson(engine.socketPath, 'GET', `/containers/${id}/json`);
}

/** Runs the containerd of the engine until it has booted, which makes it forget, if it is new, what ended meanwhile. */
async function bootContainerd(): Promise<void> {
  const config = join(engine.dir, 'exec', 'supervisor', 'supervisor.toml');
  const child = spawn('containerd', ['--config', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(child, 'exit');
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => (log += chunk.toString()));
  await waitFor(
    () => `containerd to boot: ${log}`,
    () => log.includes('successfully booted'),
  );
  child.kill('SIGKILL');
  await ended;
}

test(`exits whose witnesses die are told truly (seed ${SEED})`, async (context) => {
  const rounds = Math.ceil(COUNT / WIDTH);
  const wrong: string[] = [];
  for (let index = 0; index < rounds; index++) wrong.push(...(await round(index)));
  context.diagnostic(`${rounds * WIDTH - wrong.length} of ${rounds * WIDTH} exits were told truly`);
  assert.deepEqual(wrong, []);
});

test('exits are told truly that only a witness outside the daemon can tell', async () => {
  const gate = join(gates, 'outside');
  mkdirSync(gate);
  const endings = await Promise.all(Array.from({ length: WIDTH }, () => start(gate)));
  const pids = await Promise.all(endings.map(async (ending) => (await inspect(ending)).State.Pid));
  await engine.stop('SIGKILL');
  killProcess(/^\S*containerd --config /);
  writeFileSync(join(gate, 'go'), '');
  await waitFor('the ends', () => pids.every((pid) => !existsSync(`/proc/${pid}`)));
  await bootContainerd();
  // They have told it; now nobody is left who could be asked.
  killProcess(/^\S*containerd-shim-/);
  await engine.start();
  assert.deepEqual(await check(endings, 'daemon and containerd, then all shims killed'), []);
});
