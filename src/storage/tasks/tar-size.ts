/** Worker task: how long the tar of a layer is. */
import { tarBytesOf } from '../tar/assemble.js';

/** @throws EngineError data-loss for damaged tar-split data. */
export function tarSize({ tarSplitPath }: { readonly tarSplitPath: string }): number {
  return tarBytesOf(tarSplitPath);
}
