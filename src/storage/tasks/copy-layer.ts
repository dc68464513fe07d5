/** Worker task: unpacks the tar of a layer once more, for a place on top of other layers. */
import type { LayerContent } from '../../ports/storage.js';
import { assembleTar, type AssembleInput } from '../tar/assemble.js';
import { type UnpackTarget, unpackTar } from './unpack-tar.js';

export interface CopyLayerInput extends UnpackTarget {
  readonly from: AssembleInput;
}

export function copyLayer({ from, ...target }: CopyLayerInput): LayerContent {
  return unpackTar(assembleTar(from), target);
}
