/**
 * Gives each container that wants users of its own ids that nobody else has: from the ranges of the name `engined` in
 * /etc/subuid and /etc/subgid (subuid(5)).
 */
import { readFile } from 'node:fs/promises';
import { type EngineError, unavailable } from '../../errors/engine-error.js';
import type { IdMaps, IdRange } from '../../ports/id-maps.js';
import { fields, parseId } from './accounts.js';
import { isRange, overlap, parseRanges, type Span, span } from './subordinate-ranges.js';

const OWNER = 'engined';

interface Kind {
  readonly ids: 'uids' | 'gids';
  readonly ranges: string;
  readonly accounts: string;
}

const UIDS: Kind = { ids: 'uids', ranges: '/etc/subuid', accounts: '/etc/passwd' };
const GIDS: Kind = { ids: 'gids', ranges: '/etc/subgid', accounts: '/etc/group' };

export class OwnUsers {
  /** Ids of containers that are being made, by the container. */
  readonly #taken = new Map<string, IdMaps>();

  /** @param inUse gives the ids of the containers that are on the disk. */
  constructor(private readonly inUse: () => Iterable<IdMaps>) {}

  /**
   * Takes a free range of users and one of groups, of `count` ids each, for a container until `done`.
   * @throws EngineError unavailable when there are none, with the remedy, and when the ranges hold ids of others.
   */
  async take(container: string, count: number): Promise<IdMaps> {
    const pools = [await readPool(UIDS), await readPool(GIDS)];
    // From here to the end nobody else takes any.
    const all = [...this.inUse(), ...this.#taken.values()];
    const [uids = [], gids = []] = [UIDS, GIDS].map((kind, index): IdRange[] => {
      const used = all.flatMap((maps) => maps[kind.ids].map(({ hostId, count: size }) => span(hostId, size)));
      const hostId = firstFree(pools[index] ?? [], used, count);
      if (hostId === undefined)
        throw refused(
          `no ${count} free ids are left in the ranges of ${OWNER} in ${kind.ranges}: remove containers or add one`,
        );
      return [{ containerId: 0, hostId, count }];
    });
    const maps = { uids, gids };
    this.#taken.set(container, maps);
    return maps;
  }

  /** The container is on the disk with its ids, or is not made. */
  done(container: string): void {
    this.#taken.delete(container);
  }
}

/** Returns where `count` ids are free. */
function firstFree(pool: readonly Span[], used: readonly Span[], count: number): number | undefined {
  const sorted = used.toSorted((a, b) => a.first - b.first);
  for (const { first, end } of pool) {
    let from = first;
    for (const other of sorted) {
      if (other.end <= from) continue;
      if (other.first >= from + count) break;
      from = other.end;
    }
    if (from + count <= end) return from;
  }
  return undefined;
}

/**
 * Reads the ranges anew each time, so that an administrator adds one without a restart. None may hold an id that is
 * somebody's: a container would have the files of that user.
 */
async function readPool({ ranges, accounts }: Kind): Promise<Span[]> {
  const [text, people] = await Promise.all([ranges, accounts].map(readText));
  const lines = parseRanges(text ?? '');
  const accountIds = fields(people ?? '').flatMap(([owner = '', , id = '']) => {
    const number = parseId(id);
    return number === undefined ? [] : [{ owner, ...span(number, 1) }];
  });
  const others = [...lines.filter(({ owner }) => owner !== OWNER), ...accountIds];
  const pool = lines.filter(({ owner }) => owner === OWNER);
  for (const range of pool) {
    if (!isRange(range)) throw refused(`${ranges}: ${range.line} is no range of ids`);
    const other = others.find((one) => overlap(one, range));
    if (other) throw refused(`${ranges}: ${range.line} holds ids of ${other.owner}: give it others`);
  }
  if (pool.length === 0)
    throw refused(`no range of ${OWNER} in ${ranges}: add a line such as ${OWNER}:1000000000:655360000`);
  return pool;
}

/** '' for a file that is not there. */
async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
}

function refused(reason: string): EngineError {
  return unavailable(`user namespace mode auto: ${reason}`, { code: 'OWN_USERS' });
}
