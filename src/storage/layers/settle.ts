/** Completes a difference with what only the layers below it know. */
import type { StagedLayer } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import { toBytePath } from '../byte-path.js';
import { isOpaque } from './marks.js';

/** Does nothing for a difference that wants nothing from them. @throws EngineError invalid for links to nothing. */
export async function settle(
  workers: WorkerPool,
  diffDir: string,
  lowerDirs: readonly string[],
  { parent, implicitDirs, danglingLinks, whiteouts }: Parameters<StagedLayer['commit']>[0],
): Promise<void> {
  const hidesAll = parent !== undefined && isOpaque(toBytePath(diffDir));
  const isComplete =
    danglingLinks.length === 0 &&
    whiteouts.length === 0 &&
    (parent === undefined || implicitDirs.length === 0) &&
    !hidesAll;
  if (isComplete) return;
  await workers.run('settle-layer', { diffDir, lowerDirs, implicitDirs, danglingLinks, whiteouts });
}
