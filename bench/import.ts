/** `docker import` of a tar of 500 MB: the files of the ten-layer image. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { dockerOk } from '../test/support/cli.js';
import type { Engine } from '../test/support/engine.js';
import { createContainer, removeContainer } from './containers.js';
import { timedWarm, type Measure, type Setting } from './measure.js';
import { cli } from './save-load.js';

const NAME = 'bench/imported:1';

/** Writes the files of the large image as one tar. */
export async function exportBigImage(engine: Engine, setting: Setting, file: string): Promise<void> {
  const image = await setting.bigImage();
  await dockerOk(engine, ['pull', '-q', image], { timeoutMs: 300_000 });
  const id = await createContainer(engine, { image, command: ['none'], network: 'none' });
  await cli(engine, 'export', '-o', file, id);
  await removeContainer(engine, id);
}

export const importTar: Measure = {
  name: 'import',
  metrics: [{ name: 'import 500 MB', unit: 'ms', target: 0.5, moreIsBetter: false }],
  async prepare(engine, setting) {
    const file = join(mkdtempSync(join(engine.dir, 'import-')), 'files.tar');
    await exportBigImage(engine, setting, file);
    return async () => {
      execFileSync('sync');
      const time = await timedWarm(() => cli(engine, 'import', file, NAME));
      await cli(engine, 'rmi', NAME);
      return { 'import 500 MB': time };
    };
  },
};
