/**
 * Both engines keep what is true only while the machine runs in a file system in memory, as /run is one wherever they
 * are installed. On a disk, each removal of a file there would be measured, too.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { EngineKind } from '../test/support/engine.js';
import { mountsBelow } from '../test/support/leftovers.js';

export function withRunFilesInMemory(kind: EngineKind): EngineKind {
  return {
    ...kind,
    command(dir, socketPath) {
      const exec = join(dir, 'exec');
      if (!mountsBelow(dir).includes(exec)) {
        mkdirSync(exec, { recursive: true });
        execFileSync('mount', ['-t', 'tmpfs', '-o', 'mode=0711', 'tmpfs', exec]);
      }
      return kind.command(dir, socketPath);
    },
  };
}
