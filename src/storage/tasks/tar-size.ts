/** Worker task: computes the length of the tar of a layer. */
import { tarBytesOf } from '../tar/assemble.js';

/** @throws EngineError data-loss for damaged tar-split data. */
export function tarSize({ tarSplitPath }: { readonly tarSplitPath: string }): number {
  return tarBytesOf(tarSplitPath);
}
