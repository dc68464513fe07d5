/**
 * Exits whose witnesses die: containerd, the shim or the daemon is killed about when containers end, and each exit code
 * must be the true one afterwards. EXITS_COUNT=1000 makes it the long run; ENGINE_TEST_SEED repeats one. The containerd
 * is the one on PATH.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
import { processesOf } from '../support/leftovers.js';
import { randomNumbers } from '../support/random-numbers.js';

const COUNT = Number(process.env['EXITS_COUNT'] ?? 24);
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

/** Kills the process that is called so and has `id`, if any, on its command line. It may be gone already. */
function killProcess(name: RegExp, id = ''): void {
  for (const { pid, command } of processesOf(engine.dir)) {
    if (!name.test(command) || !command.includes(id)) continue;
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
  else killProcess(/^\S*containerd-shim-/, id);
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
  const wrong = await Promise.all(
    endings.map(async (ending) => {
      const said = await callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${ending.id}/wait`);
      const { State: state } = await callJson<{ State: State }>(
        engine.socketPath,
        'GET',
        `/containers/${ending.id}/json`,
      );
      const isTrue = [ending.code, ...(ending === victim ? withoutShim(deaths) : [])].includes(state.ExitCode);
      if (isTrue && state.Status === 'exited' && said.StatusCode === state.ExitCode) return [];
      const told = `${state.Status} with ${state.ExitCode}, to those who wait ${said.StatusCode}`;
      return [`${deaths.join(', then ')} killed (${killsAt.join(', ')}): ended with ${ending.code}, told: ${told}`];
    }),
  );
  await Promise.all(
    endings.map(({ id }) => callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204)),
  );
  return wrong.flat();
}

test(`exits whose witnesses die are told truly (seed ${SEED})`, async (context) => {
  const rounds = Math.ceil(COUNT / WIDTH);
  const wrong: string[] = [];
  for (let index = 0; index < rounds; index++) wrong.push(...(await round(index)));
  context.diagnostic(`${rounds * WIDTH - wrong.length} of ${rounds * WIDTH} exits were told truly`);
  assert.deepEqual(wrong, []);
});
