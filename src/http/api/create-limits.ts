/**
 * Limits of the lists in a create request. Each of them is checked, kept, shown and acted on by the main thread, which
 * takes about a millisecond for a thousand members each time; no container that means it well has nearly so many.
 */
import { invalid } from '../../errors/engine-error.js';
import { MAX_HOST_MEMBERS, MAX_MEMBERS, MAX_PORTS } from '../../ports/config-limits.js';
import { memberNames } from '../../text/member-names.js';
import { folded } from './decode.js';

/** Limits by the name of the field in small letters. */
const LIMITS: ReadonlyMap<string, number> = new Map([
  ['exposedports', MAX_PORTS],
  ['portbindings', MAX_PORTS],
  ['extrahosts', MAX_MEMBERS],
  ['annotations', MAX_MEMBERS],
]);
/** Lists are this deep, as those of one endpoint: body, `NetworkingConfig`, `EndpointsConfig`, endpoint. */
const DEPTH = 4;

/** @throws EngineError invalid, which names the first list that is too long. */
export function checkListLengths(body: unknown): void {
  check(body, { depth: DEPTH, prefix: '', most: MAX_MEMBERS });
}

interface Place {
  readonly depth: number;
  readonly prefix: string;
  /** The limit of lists that have none of their own. */
  readonly most: number;
}

function check(value: unknown, { depth, prefix, most }: Place): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  for (const [name, member] of Object.entries(value)) {
    if (typeof member !== 'object' || member === null) continue;
    const own = LIMITS.get(folded(name));
    const isOfHost = most === MAX_HOST_MEMBERS || ['hostconfig', 'networkingconfig'].includes(folded(name));
    const limit = own ?? most;
    const count = Array.isArray(member) ? member.length : memberNames(member).length;
    if (count > limit)
      throw invalid(`invalid container configuration: ${prefix}${name} has more than ${limit} members`);
    if (own === undefined && depth > 1)
      check(member, { depth: depth - 1, prefix: `${prefix}${name}.`, most: isOfHost ? MAX_HOST_MEMBERS : most });
  }
}
