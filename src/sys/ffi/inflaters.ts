/** Chooses the library that inflates gzip. */
import type { MakeInflater } from './inflater.js';
import { canIsal, IsalInflater } from './isal-inflater.js';
import { canZlib, ZlibInflater } from './zlib-inflater.js';

/** Returns how this machine inflates, the fastest first; none where Node keeps its zlib for itself and has no other. */
export function inflaters(): readonly MakeInflater[] {
  return [
    ...(canIsal() ? [(hasDigest: boolean) => new IsalInflater(hasDigest)] : []),
    ...(canZlib() ? [(hasDigest: boolean) => new ZlibInflater(hasDigest)] : []),
  ];
}
