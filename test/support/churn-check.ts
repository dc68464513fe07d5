/** Kills of a daemon in the middle of changes, and what must hold after each of them, on any storage driver. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { SeededRegistry } from './busybox-image.js';
import { Churn, PRUNE_IMAGES } from './churn.js';
import { assertWithin, diskBytes } from './disk.js';
import { engineOk } from './engine-commands.js';
import type { Engine } from './engine.js';
import { call, callJson } from './http.js';
import { randomNumbers } from './random-numbers.js';
import { waitFor } from './wait.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
export const SNAPSHOTTER = 'supervisor-snapshotter';
/** Each of these, the promise says, is killed at random moments. A long run tells that it was. */
const PROMISED = ['pull', 'commit', 'create', 'remove container', 'remove images', 'prune'];
const LONG_RUN = 200;
/** In a long run the sizes are compared this often, and after the last kill. */
const ROUNDS_A_SIZE = 10;
/** A start, and an agreement of sizes, may take so long. */
const LIMIT_MS = 120_000;

/** A daemon that has the container of `makeKept`, its data root, and where its layers are. */
export interface CheckedRoot {
  readonly engine: Engine;
  readonly registry: SeededRegistry;
  readonly dataRoot: string;
  /** The storage driver, or supervisor-snapshotter. */
  readonly store: string;
  /** The file system's own figure for the data root. Default: that of du(1), which leaves out subvolumes. */
  readonly usedBytes?: (() => number) | undefined;
}

export interface ChurnRun extends CheckedRoot {
  readonly rounds: number;
  /** So many times as long as elsewhere takes what runs on an emulated processor. */
  readonly slowness?: number;
}

interface Report {
  readonly bytes: number;
  readonly kinds: { kind: string; count: number; bytes: number }[];
  readonly findings: { path: string; kind: string; reason: string; outcome: string }[];
}
interface DiskUsage {
  readonly DataRoot: { readonly Size: number };
}

/** Makes the container that all checks find whole. */
export async function makeKept(engine: Engine, image: string): Promise<void> {
  const script = 'echo some output; echo a >/v/file; head -c 20000000 /dev/urandom >/file';
  await engineOk(engine, ['volume', 'create', 'kept']);
  await engineOk(engine, ['run', '--name', 'kept', '--network', 'none', '-v', 'kept:/v', image, 'sh', '-c', script]);
}

/** Runs the command on a data root that no daemon uses, or that one does. */
export function offlineFsck(
  { engine, dataRoot }: Pick<CheckedRoot, 'engine' | 'dataRoot'>,
  ...args: readonly string[]
): { readonly status: number | null; readonly output: string } {
  const { status, stdout, stderr } = spawnSync(
    MAIN,
    ['fsck', '--config-file', join(engine.dir, 'daemon.json'), '--data-root', dataRoot, ...args],
    { encoding: 'utf8' },
  );
  return { status, output: stdout + stderr };
}

export function onlineFsck({ socketPath }: Engine, dryRun: boolean): Promise<Report> {
  return callJson<Report>(socketPath, 'POST', `/engine/fsck?dryRun=${dryRun ? 1 : 0}`);
}

export async function checkKept({ engine, registry }: Pick<CheckedRoot, 'engine' | 'registry'>): Promise<void> {
  assert.match(await engineOk(engine, ['logs', 'kept']), /^some output$/m);
  assert.equal(
    await engineOk(engine, ['run', '--rm', '--network', 'none', '-v', 'kept:/v', registry.reference, 'cat', '/v/file']),
    'a',
  );
  await engineOk(engine, ['start', '-a', 'kept']);
}

/** The sizes of a data root, as the daemon and the file system tell them. */
class Sizes {
  /** Bytes that only the daemon counts: a link takes a block, as du(1) sees it, and none in the data of a btrfs. */
  #apart = 0;
  readonly #used: () => number;
  /** The largest difference so far, as a part of the whole. */
  largest = 0;

  constructor(
    private readonly of: CheckedRoot,
    private readonly limitMs: number,
  ) {
    this.#used = of.usedBytes ?? (() => diskBytes(of.dataRoot));
  }

  async begin(): Promise<void> {
    if (this.of.usedBytes !== undefined) this.#apart = (await this.#told()) - this.#used();
  }

  /** Waits until both are the same within 1 %, which they are once what was deleted is gone from both. */
  async agree(): Promise<void> {
    let [told, is] = [0, 0];
    const agree = async (): Promise<boolean> => {
      [told, is] = [await this.#told(), this.#used() + this.#apart];
      return Math.abs(told - is) <= is * 0.01;
    };
    await waitFor(() => `${told} bytes of df to agree with ${is} of the file system`, agree, this.limitMs);
    this.largest = Math.max(this.largest, Math.abs(told - is) / is);
  }

  /** Without what remembers what happened, and grows for a while: the logs of events and builds, databases. */
  content(): number {
    const { dataRoot } = this.of;
    const supervisor = join(dataRoot, 'supervisor');
    // Directories deeper than those of the plugins may be gone before they are read: tasks are being deleted.
    const databases = readdirSync(supervisor)
      .flatMap((plugin) => readdirSync(join(supervisor, plugin)).map((name) => join(plugin, name)))
      .filter((name) => name.endsWith('.db'));
    const history = join(dataRoot, 'builder', 'history');
    const memories = [join(dataRoot, 'events'), ...(existsSync(history) ? [history] : [])];
    return [...memories, ...databases.map((name) => join(supervisor, name))].reduce(
      (bytes, path) => bytes - diskBytes(path),
      this.#used(),
    );
  }

  async #told(): Promise<number> {
    return (await callJson<DiskUsage>(this.of.engine.socketPath, 'GET', '/system/df')).DataRoot.Size;
  }
}

/**
 * Kills the daemon once a round in the middle of two changes, and checks after each start that fsck finds nothing, then
 * that the data root is as large as before. Returns what to tell of it.
 */
export async function checkKills(run: ChurnRun): Promise<string> {
  const { engine, registry, dataRoot, store, rounds, slowness = 1 } = run;
  // A build by its client takes longer than all else; a creation is over soon, so every other round is shorter.
  const longest = [store === SNAPSHOTTER ? 1_200 : 400, 60].map((ms) => ms * slowness);
  const random = randomNumbers(rounds);
  const limitMs = LIMIT_MS * slowness;
  const sizes = new Sizes(run, limitMs);
  const churn = await Churn.prepare(engine, registry, store === SNAPSHOTTER);
  await call(engine.socketPath, 'POST', PRUNE_IMAGES);
  await sizes.begin();
  await engine.stop();
  const start = sizes.content();
  for (let round = 0; round < rounds; round++) {
    await engine.start(limitMs);
    assert.deepEqual((await onlineFsck(engine, true)).findings, [], `round ${round}`);
    await churn.builds.allWhole();
    if (round % ROUNDS_A_SIZE === ROUNDS_A_SIZE - 1) await sizes.agree();
    churn.begin(random);
    churn.begin(random);
    await new Promise((resolve) => setTimeout(resolve, random(longest[round % 2] ?? 0)));
    await churn.kill();
  }
  if (rounds >= LONG_RUN) for (const name of PROMISED) assert.ok((churn.killed.get(name) ?? 0) > 0, name);
  await engine.start(limitMs);
  await sizes.agree();
  await churn.removeAll('kept');
  assert.deepEqual((await onlineFsck(engine, true)).findings, []);
  await sizes.agree();
  await checkKept(run);
  // The supervisor deletes what belonged to the images a moment later.
  const isAsBefore = (): boolean => Math.abs(sizes.content() - start) <= start * 0.01;
  await waitFor(() => `${sizes.content()} bytes to be the ${start} of before`, isAsBefore, limitMs);
  await engine.stop();
  const { status, output } = offlineFsck(run);
  assert.equal(status, 0, output);
  assertWithin(sizes.content(), start, 0.01, 'the data root');
  assert.deepEqual(readdirSync(join(dataRoot, store, 'staging')), []);
  await engine.start(limitMs);
  const killed = JSON.stringify(Object.fromEntries(churn.killed));
  return `${rounds} kills; under way: ${killed}; sizes differed by ${(sizes.largest * 100).toFixed(2)} % at most`;
}
