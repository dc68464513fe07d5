/** `docker cp` of a file of 1 GB into a running container and out of it. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dockerOk } from '../test/support/cli.js';
import { createContainer, removeContainer, startContainer } from './containers.js';
import { timed, type Measure } from './measure.js';

const BYTES = 1_000_000_000;

export const copy: Measure = {
  name: 'copy',
  metrics: [
    { name: 'cp 1 GB into a container', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'cp 1 GB out of a container', unit: 'ms', target: 0.5, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    return async () => {
      const dir = mkdtempSync(join(tmpdir(), 'bench-copy-'));
      const id = await createContainer(engine, { image, command: ['sleep', '1000'], network: 'none' });
      try {
        // Bytes that are no holes and do not compress.
        execFileSync('sh', ['-c', `head -c ${BYTES} /dev/urandom > "$0"`, join(dir, 'in')]);
        // The disk is not to be busy with this file, or those of the round before, while copies are measured.
        execFileSync('sync');
        await startContainer(engine, id);
        const into = await timed(() => dockerOk(engine, ['cp', join(dir, 'in'), `${id}:/file`]));
        const out = await timed(() => dockerOk(engine, ['cp', `${id}:/file`, join(dir, 'out')]));
        execFileSync('cmp', [join(dir, 'in'), join(dir, 'out')]);
        return { 'cp 1 GB into a container': into, 'cp 1 GB out of a container': out };
      } finally {
        await removeContainer(engine, id);
        rmSync(dir, { recursive: true });
      }
    };
  },
};
