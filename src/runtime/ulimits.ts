/** Names and ranges of resource limits (man 2 setrlimit), as clients write them. */
import { invalid } from '../errors/engine-error.js';
import type { Ulimit } from '../ports/container.js';

const NAMES = new Set([
  'core',
  'cpu',
  'data',
  'fsize',
  'locks',
  'memlock',
  'msgqueue',
  'nice',
  'nofile',
  'nproc',
  'rss',
  'rtprio',
  'rttime',
  'sigpending',
  'stack',
  'as',
]);

/**
 * Checks a limit; -1 means no limit. @throws EngineError invalid for an unknown name or a soft limit above the hard
 * one.
 */
export function checkUlimit({ Name, Soft, Hard }: Ulimit): void {
  if (!NAMES.has(Name)) throw invalid(`invalid ulimit type: ${Name}`);
  if (Soft < -1 || Hard < -1) throw invalid(`invalid ulimit ${Name}: ${Soft}:${Hard}`);
  if (Hard !== -1 && (Soft === -1 || Soft > Hard))
    throw invalid(`ulimit soft limit must be less than or equal to hard limit: ${Soft} > ${Hard}`);
}
