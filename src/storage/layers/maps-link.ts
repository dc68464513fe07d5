/**
 * The users of a container's own are the text of a link in its directory, for the reason that the layer below is
 * (parent-link.ts).
 */
import { join } from 'node:path';
import { dataLoss } from '../../errors/engine-error.js';
import type { IdMaps, IdRange } from '../../ports/id-maps.js';
import type { QuickReader } from '../../sys/files/quick-reader.js';

export const mapsLink = (directory: string): string => join(directory, 'id-maps');

/** `FIRST:HOST:COUNT` of each range with commas between, those of users, `/`, those of groups. */
export function mapsText({ uids, gids }: IdMaps): string {
  const text = (ranges: readonly IdRange[]): string =>
    ranges.map(({ containerId, hostId, count }) => `${containerId}:${hostId}:${count}`).join(',');
  return `${text(uids)}/${text(gids)}`;
}

/** Returns the maps of a container's directory; undefined without any. @throws EngineError data-loss. */
export async function readMaps(directory: string, links: QuickReader): Promise<IdMaps | undefined> {
  const text = await links.link(mapsLink(directory));
  if (text === undefined) return undefined;
  const [uids = [], gids = []] = text.split('/').map((part) => part.split(',').flatMap(parseRange));
  if (mapsText({ uids, gids }) !== text)
    throw dataLoss(`${mapsLink(directory)}: ${text} are no ids`, { code: 'ID_MAPS' });
  return { uids, gids };
}

function parseRange(text: string): IdRange[] {
  const [containerId = NaN, hostId = NaN, count = NaN] = text.split(':').map(Number);
  return [containerId, hostId, count].every(Number.isSafeInteger) ? [{ containerId, hostId, count }] : [];
}
