/** Makes the standard streams of processes. Those of containers are kept while the daemon is away. */
import type { StdioFactory } from '../actors/container/deps.js';
import type { Logger } from '../ports/logger.js';
import type { ProcessStdio, StdioPaths } from '../ports/supervisor.js';
import { createStdio, keepOutputs, releaseOutputs, reopenStdio, type KeptOutput } from '../supervisor/stdio/stdio.js';
import type { DescriptorKeeper } from '../sys/process/descriptor-keeper.js';

export function composeStdio(keeper: DescriptorKeeper, log: Logger): StdioFactory {
  /** A container runs all the same when its output cannot be kept; it may lose some of it when the daemon is away. */
  const onUnkept = (error: unknown): void =>
    log.error({ err: error }, 'the output of a container is not kept while the daemon is away');
  const keep = (paths: StdioPaths): Promise<void> => keepOutputs(keeper, paths).catch(onUnkept);
  const keptBy = (paths: () => StdioPaths): KeptOutput => ({
    onClose: () => releaseOutputs(keeper, paths()),
    onUnkept,
  });
  const reopen = async (paths: StdioPaths, isEnded = false): Promise<ProcessStdio> => {
    const stdio = reopenStdio(
      paths,
      keptBy(() => paths),
      isEnded,
    );
    // This is so before the keepers of earlier daemons are ended.
    if (stdio.stdout || stdio.stderr) await keep(paths);
    return stdio;
  };
  return {
    create: async ({ isKept = false, ...request }) => {
      if (!isKept) return createStdio(request);
      const stdio = createStdio({ ...request, kept: keptBy(() => stdio.paths) });
      void keep(stdio.paths);
      return stdio;
    },
    reopen: (paths) => reopen(paths),
    reopenEnded: (paths) => reopen(paths, true),
  };
}
