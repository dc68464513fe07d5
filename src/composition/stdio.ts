/** Makes the standard streams of processes. Those of containers are kept while the daemon is away. */
import type { StdioFactory } from '../actors/container/deps.js';
import type { Logger } from '../ports/logger.js';
import type { StdioPaths } from '../ports/supervisor.js';
import { readRest } from '../supervisor/rest-of-output.js';
import { createStdio, keepOutputs, releaseOutputs, reopenStdio } from '../supervisor/stdio.js';
import type { DescriptorKeeper } from '../sys/process/descriptor-keeper.js';

/** A process that has ended may have this pause before the next piece of its output. */
const REST_MS = 5_000;

export function composeStdio(keeper: DescriptorKeeper, log: Logger): StdioFactory {
  /** A container runs all the same when its output cannot be kept; it may lose some of it when the daemon is away. */
  const keep = (paths: StdioPaths): void =>
    void keepOutputs(keeper, paths).catch((error: unknown) =>
      log.error({ err: error }, 'the output of a container is not kept while the daemon is away'),
    );
  return {
    create: async ({ isKept = false, ...request }) => {
      if (!isKept) return createStdio(request);
      const stdio = createStdio({ ...request, onClose: () => releaseOutputs(keeper, stdio.paths) });
      keep(stdio.paths);
      return stdio;
    },
    reopen: async (paths) => {
      keep(paths);
      return reopenStdio(paths, () => releaseOutputs(keeper, paths));
    },
    rest: (path) => readRest(path, REST_MS),
  };
}
