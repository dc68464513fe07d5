/** Builds as people make them all day, by the unmodified client: small steps, the cache, large contexts, stages. */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Buildx } from '../test/support/buildx.js';
import type { Engine } from '../test/support/engine.js';
import { generatedBytes } from '../test/support/image-builder.js';
import { BuildDoor } from './build-door.js';
import { delaySince } from './event-loop.js';
import { median, timed, type Measure, type Metric, type Sample, type Setting } from './measure.js';
import { peakResidentBytes, residentBytes } from './resident-memory.js';
import { warmMemory } from './warm-memory.js';

const FILES = 20_000;
const CONTEXT_BYTES = 500_000_000;
const LARGE_BYTES = 1 << 30;
const PIECE_BYTES = 1 << 24;
/**
 * A rebuild is so short that one of them says little, nor do five: one of them comes just after free memory was filled,
 * which takes a second and the processors' caches, and others beside what an engine does after its replies.
 */
const REBUILDS = 11;
const REBUILDS_AT_DOOR = 31;

/** The directories that are built, and what is done with them. */
class Builds {
  readonly #buildx: Buildx;
  readonly #door: BuildDoor;

  constructor(engine: Engine, image: string) {
    this.#buildx = new Buildx(join(engine.dir, 'builds'), engine.host);
    const steps = Array.from({ length: 10 }, (_, index) => `RUN echo ${index} > /step-${index}\n`);
    const dockerfile = `FROM ${image}\n${steps.join('')}`;
    this.#buildx.write('steps/Dockerfile', dockerfile);
    this.#door = new BuildDoor(engine.socketPath, dockerfile);
    // The stages differ, as equal ones would be one for an engine, and compute nothing that takes both engines as long.
    const work = (name: string): string => `RUN echo ${name} >> /${name}\n`;
    const stages = ['a', 'b', 'c', 'd'];
    this.#buildx.write(
      'stages/Dockerfile',
      stages.map((name) => `FROM ${image} AS ${name}\n${work(name).repeat(3)}`).join('') +
        `FROM scratch\n${stages.map((name) => `COPY --from=${name} /${name} /\n`).join('')}`,
    );
    this.#buildx.write('large/Dockerfile', 'FROM scratch\nCOPY large /\n');
    this.#buildx.write('many/Dockerfile', 'FROM scratch\nCOPY . /\n');
  }

  /** Makes the large contexts. Their bytes are not all the same, as those of people are not. */
  fill(): void {
    const large = join(this.#buildx.directory, 'large/large');
    const piece = generatedBytes(PIECE_BYTES, 81);
    for (let bytes = 0; bytes < LARGE_BYTES; bytes += PIECE_BYTES) appendFileSync(large, piece);
    const size = CONTEXT_BYTES / FILES;
    for (let index = 0; index < FILES; index++) {
      const directory = join(this.#buildx.directory, `many/d${Math.floor(index / 100)}`);
      if (index % 100 === 0) mkdirSync(directory);
      writeFileSync(
        join(directory, `f${index}`),
        piece.subarray((index * 797) % (PIECE_BYTES - size)).subarray(0, size),
      );
    }
  }

  async build(directory: string, ...args: readonly string[]): Promise<void> {
    await this.#buildx.ok(['build', '-q', '-t', directory, ...args, '.'], { in: directory });
  }

  /** The rebuild of the steps as buildx orders it, without its start and its end. */
  rebuildAtDoor(): Promise<void> {
    return this.#door.build('steps');
  }

  changeOneFile(): void {
    appendFileSync(join(this.#buildx.directory, 'many/d7/f700'), 'more');
  }

  /** Removes what has no use for the next sample: a build without cache leaves an image of 1 GB each time. */
  async clear(): Promise<void> {
    await this.forget('large');
    await this.#buildx.ok(['image', 'prune', '-f']);
  }

  /** The next build finds neither files nor steps. */
  async forget(directory: string): Promise<void> {
    await this.#buildx.run(['rmi', '-f', directory]);
    await this.#buildx.ok(['builder', 'prune', '-af']);
  }
}

/** A piece of work that is timed. Scenes follow each other as listed; `before` is not timed. */
interface Scene {
  readonly name: string;
  readonly target: number;
  readonly before?: (builds: Builds) => Promise<unknown> | void;
  readonly act: (builds: Builds) => Promise<unknown>;
  readonly times?: number;
}

const SCENES: readonly Scene[] = [
  { name: 'build, ten RUNs without cache', target: 0.5, act: (builds) => builds.build('steps', '--no-cache') },
  {
    name: 'build, everything cached',
    target: 0.5,
    before: (builds) => builds.build('steps'),
    act: (builds) => builds.build('steps'),
    times: REBUILDS,
  },
  {
    name: 'build, everything cached, at the door',
    target: 0.5,
    before: (builds) => builds.rebuildAtDoor(),
    act: (builds) => builds.rebuildAtDoor(),
    times: REBUILDS_AT_DOOR,
  },
  { name: 'build, four stages', target: 0.7, act: (builds) => builds.build('stages', '--no-cache') },
  {
    name: 'build, context of 20,000 files and 500 MB',
    target: 0.8,
    before: (builds) => builds.forget('many'),
    act: (builds) => builds.build('many'),
  },
  {
    name: 'build, the same with one file changed',
    target: 0.5,
    before: (builds) => builds.changeOneFile(),
    act: (builds) => builds.build('many'),
  },
  {
    name: 'build, COPY of 1 GB',
    target: 0.8,
    before: (builds) => builds.build('large'),
    act: (builds) => builds.build('large', '--no-cache'),
  },
];

async function takeScene({ before, act, times = 1 }: Scene, builds: Builds): Promise<number> {
  await before?.(builds);
  const taken: number[] = [];
  warmMemory();
  for (let count = 0; count < times; count++) taken.push(await timed(() => act(builds)));
  return median(taken);
}

async function prepareBuilds(engine: Engine, { image }: Setting): Promise<Builds> {
  const builds = new Builds(engine, image);
  builds.fill();
  await builds.build('steps');
  return builds;
}

const MEMORY: Metric = {
  name: 'memory above idle at the peak of builds',
  unit: 'MiB',
  target: 150,
  moreIsBetter: false,
  isAbsolute: true,
};

export const buildTimes: Measure = {
  name: 'build',
  metrics: [...SCENES.map(({ name, target }): Metric => ({ name, unit: 'ms', target, moreIsBetter: false })), MEMORY],
  async prepare(engine, setting) {
    const idle = residentBytes(engine.pid);
    const builds = await prepareBuilds(engine, setting);
    return async () => {
      const sample: Record<string, number> = {};
      const peak = await peakResidentBytes(engine.pid, async () => {
        for (const scene of SCENES) sample[scene.name] = await takeScene(scene, builds);
      });
      await builds.clear();
      return { ...sample, [MEMORY.name]: (peak - idle) / 2 ** 20 };
    };
  },
};

const delayOf = (name: string): string => `event loop delay, p99, ${name}`;

/** How late the main thread is meanwhile for anybody else. */
export const buildDelays: Measure = {
  name: 'build',
  metrics: SCENES.map(({ name }) => ({
    name: delayOf(name),
    unit: 'ms',
    target: 20,
    moreIsBetter: false,
    isAbsolute: true,
  })),
  needsMetrics: true,
  async prepare(engine, setting) {
    const builds = await prepareBuilds(engine, setting);
    return async () => {
      const sample: Record<string, number> = {};
      for (const scene of SCENES) {
        await scene.before?.(builds);
        await delaySince(setting.tcpUrl);
        await scene.act(builds);
        sample[delayOf(scene.name)] = await delaySince(setting.tcpUrl);
      }
      return sample satisfies Sample;
    };
  },
};
