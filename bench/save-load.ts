/** Save and load of a ten-layer image of 500 MB, through files as people do it. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { dockerCli } from '../test/support/dockerd.js';
import type { Engine } from '../test/support/engine.js';
import { callJson } from '../test/support/http.js';
import { dockerOk } from '../test/support/cli.js';
import { timedWarm, type Measure } from './measure.js';
import { peakResidentBytes } from './resident-memory.js';

/** `docker` with its output to the terminal; throws when it fails. */
export async function cli(engine: Engine, ...args: string[]): Promise<void> {
  const child = spawn(dockerCli(), args, {
    env: { ...process.env, DOCKER_HOST: engine.host, DOCKER_CONFIG: join(engine.dir, 'cli') },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code] = (await once(child, 'exit')) as [number];
  if (code !== 0) throw new Error(`docker ${args.join(' ')} ended with ${code}`);
}

export const saveLoad: Measure = {
  name: 'save-load',
  metrics: [
    { name: 'save 500 MB', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'load 500 MB', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'memory at the peak of save and load', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, setting) {
    const reference = await setting.bigImage();
    await dockerOk(engine, ['pull', '-q', reference], { timeoutMs: 300_000 });
    const dir = mkdtempSync(join(engine.dir, 'save-load-'));
    const archive = join(dir, 'image.tar');
    return async () => {
      let save = 0;
      let load = 0;
      // While memory is filled, the kernel frees what was read once: the image would come from the disk, or not. Pages
      // that were read twice are on its list of active ones, and stay.
      for (let time = 0; time < 2; time++)
        execFileSync('sh', ['-c', 'find "$1" -xdev -type f -exec cat {} + > /dev/null', 'sh', engine.dir]);
      const peak = await peakResidentBytes(engine.pid, async () => {
        save = await timedWarm(() => cli(engine, 'save', '-o', archive, reference));
        await callJson(engine.socketPath, 'DELETE', `/images/${reference}?force=1`);
        // Neither engine shall wait for what the other wrote.
        execFileSync('sync');
        load = await timedWarm(() => cli(engine, 'load', '-qi', archive));
      });
      rmSync(archive);
      return { 'save 500 MB': save, 'load 500 MB': load, 'memory at the peak of save and load': peak / 2 ** 20 };
    };
  },
};
