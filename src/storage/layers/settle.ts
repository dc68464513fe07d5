/** Completes a difference with what only the layers below it know. */
import type { LayerThreads, StagedLayer, UnsettledLayer } from '../../ports/storage.js';
import { toBytePath } from '../byte-path.js';
import { isOpaque } from './marks.js';

/** Files that are looked for, in all layers below together, in less time than a thread takes to start. */
const FEW_FILES = 2000;

/**
 * Does nothing for a difference that wants nothing from them.
 * @param threads do what is short, in the place of the workers: one more thread would take longer, and memory.
 * @throws EngineError invalid for links to nothing.
 */
export async function settle(
  { workers, threads = workers }: { readonly workers: LayerThreads; readonly threads?: LayerThreads | undefined },
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
  const input = { diffDir, lowerDirs, implicitDirs, danglingLinks, whiteouts };
  await (!hidesAll && isShort(input) ? threads : workers).run('settle-layer', input);
}

/** False for what copies files or looks for many: the threads have others waiting. */
function isShort({ lowerDirs, implicitDirs, danglingLinks, whiteouts }: UnsettledLayer): boolean {
  return danglingLinks.length === 0 && (implicitDirs.length + whiteouts.length) * lowerDirs.length <= FEW_FILES;
}
