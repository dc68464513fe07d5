/**
 * How late the main thread is for anything else while images come and go: what a client of another request waits for.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { dockerOk } from '../test/support/cli.js';
import type { Measure, Metric } from './measure.js';
import { pull } from './pull.js';
import { push } from './push.js';
import { cli } from './save-load.js';

const PERCENTILE = /^nodejs_eventloop_lag_p99_seconds (\S+)$/m;
/** Node measures the time between two of its ticks, which are this far apart when nothing delays them. */
const TICK_MS = 10;

/** Milliseconds; each reading begins a new count. */
export async function delaySince(url: string): Promise<number> {
  const text = await (await fetch(url)).text();
  return Number(PERCENTILE.exec(text)?.[1]) * 1000 - TICK_MS;
}

const metric = (action: string): Metric => ({
  name: `event loop delay, p99, ${action}`,
  unit: 'ms',
  target: 15,
  moreIsBetter: false,
  isAbsolute: true,
});

export const eventLoop: Measure = {
  name: 'event-loop',
  metrics: ['pull', 'pull, 16 clients', 'push', 'save', 'load'].map(metric),
  needsMetrics: true,
  async prepare(engine, setting) {
    const reference = await setting.bigImage();
    const dir = mkdtempSync(join(engine.dir, 'event-loop-'));
    const archive = join(dir, 'image.tar');
    const during = async (action: string, work: () => Promise<unknown>): Promise<Record<string, number>> => {
      await delaySince(setting.tcpUrl);
      await work();
      return { [metric(action).name]: await delaySince(setting.tcpUrl) };
    };
    const remove = (): Promise<string> => dockerOk(engine, ['rmi', '-f', reference]);
    return async () => {
      const taken = [await during('pull', () => pull(engine, reference))];
      await remove();
      taken.push(
        await during('pull, 16 clients', () => Promise.all(Array.from({ length: 16 }, () => pull(engine, reference)))),
      );
      taken.push(await during('push', () => push(engine, reference)));
      taken.push(await during('save', () => cli(engine, 'save', '-o', archive, reference)));
      await remove();
      taken.push(await during('load', () => cli(engine, 'load', '-qi', archive)));
      await remove();
      rmSync(archive);
      return Object.assign({}, ...taken) as Record<string, number>;
    };
  },
};
