/**
 * `npm run bench -- --timeline NAME`: a picture of where the time of one start, exec, pull, push or build goes. The
 * daemon says when each step of its work began and ended (src/telemetry/timeline.ts).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Buildx } from '../test/support/buildx.js';
import { dockerOk } from '../test/support/cli.js';
import { Engine } from '../test/support/engine.js';
import { engined } from '../test/support/engined.js';
import { callJson } from '../test/support/http.js';
import { createContainer, lifeOfContainer, startContainer } from './containers.js';
import { execTrue } from './exec.js';
import type { Setting } from './measure.js';
import { pull } from './pull.js';
import { push } from './push.js';
import { withRunFilesInMemory } from './run-files.js';
import { timelineChart, type TimelineStep } from './timeline-chart.js';

/** The first runs load code and fill caches. */
const WARM_UP = 10;
/** The daemon writes behind what it does. */
const SETTLE_MS = 300;

interface Scene {
  readonly title: string;
  /** The first run takes what every later one finds done. */
  readonly warmUp: number;
  /** Prepares what is not drawn; the result does it once. */
  prepare(engine: Engine, setting: Setting): Promise<() => Promise<unknown>>;
}

const SCENES = new Map<string, Scene>([
  [
    'start',
    {
      title: 'create, start, wait and remove of /bin/true',
      warmUp: WARM_UP,
      prepare:
        async (engine, { image }) =>
        () =>
          lifeOfContainer(engine, { image, command: ['/bin/true'] }),
    },
  ],
  [
    'exec',
    {
      title: 'exec of /bin/true',
      warmUp: WARM_UP,
      async prepare(engine, { image }) {
        const container = await createContainer(engine, { image, command: ['sleep', '100000'] });
        await startContainer(engine, container);
        return () => execTrue(engine, container);
      },
    },
  ],
  [
    'pull',
    {
      title: 'pull of 500 MB in ten layers',
      warmUp: 1,
      async prepare(engine, setting) {
        const reference = await setting.bigImage();
        return async () => {
          await callJson(engine.socketPath, 'DELETE', `/images/${reference}?force=1`).catch(() => undefined);
          await pull(engine, reference);
        };
      },
    },
  ],
  [
    'push',
    {
      title: 'push of 500 MB in ten layers to an empty registry',
      warmUp: 0,
      async prepare(engine, setting) {
        const reference = await setting.bigImage();
        await dockerOk(engine, ['pull', '-q', reference], { timeoutMs: 600_000 });
        return () => push(engine, reference);
      },
    },
  ],
  [
    'build',
    {
      title: 'build of three RUNs without cache',
      warmUp: 3,
      async prepare(engine, { image }) {
        const buildx = new Buildx(join(engine.dir, 'builds'), engine.host);
        buildx.write('steps/Dockerfile', `FROM ${image}\n${'RUN date > /date\n'.repeat(3)}`);
        return () => buildx.ok(['build', '-q', '--no-cache', '.'], { in: 'steps' });
      },
    },
  ],
]);

function stepsIn(path: string): TimelineStep[] {
  return readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as TimelineStep);
}

/**
 * Draws the scene of this name, by a daemon with these flags, into `dir`; throws with the names there are when there is
 * none of this name.
 */
export async function drawTimeline(
  name: string,
  setting: Setting,
  dir: string,
  args: readonly string[],
): Promise<void> {
  const scene = SCENES.get(name);
  if (scene === undefined) throw new Error(`there is no timeline ${name}; there are ${[...SCENES.keys()].join(', ')}`);
  mkdirSync(dir, { recursive: true });
  const steps = join(dir, `timeline-${name}.jsonl`);
  writeFileSync(steps, '');
  const engine = await Engine.start(withRunFilesInMemory(engined({ args, env: { ENGINED_TIMELINE: steps } })));
  try {
    await dockerOk(engine, ['pull', '-q', setting.image]);
    const act = await scene.prepare(engine, setting);
    for (let run = 0; run < scene.warmUp; run++) await act();
    await sleep(SETTLE_MS);
    writeFileSync(steps, '');
    await act();
    await sleep(SETTLE_MS);
    const chart = join(dir, `timeline-${name}.svg`);
    writeFileSync(chart, timelineChart(scene.title, stepsIn(steps)));
    console.log(chart);
  } finally {
    await engine.discard();
  }
}
