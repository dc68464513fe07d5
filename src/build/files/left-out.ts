/** Files that a step does not see: by the patterns of an ignore file or of `--exclude`. For worker threads. */
import { toText } from '../../storage/byte-path.js';
import { IgnoreMatcher } from '../dockerfile/ignore-file.js';
import type { LeftOut } from './source-files.js';

/** @throws EngineError invalid for a pattern that is malformed. */
export function leftOutBy(patterns: readonly string[]): LeftOut {
  if (patterns.length === 0) return () => false;
  const matcher = new IgnoreMatcher(patterns);
  return (path) => matcher.matches(toText(path));
}
