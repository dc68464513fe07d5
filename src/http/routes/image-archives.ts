/** Images as archives: `docker save` and `docker load`. */
import { invalid, messageOf } from '../../errors/engine-error.js';
import { type LoadDeps, loadImages } from '../../images/archive/load.js';
import { type SaveDeps, saveImages } from '../../images/archive/save.js';
import { selectSaved } from '../../images/archive/select.js';
import type { ProgressFact } from '../../ports/progress.js';
import type { Platform } from '../../registry/platform.js';
import { platformObject } from '../api/platform.js';
import { encodeProgress, encodeRecord } from '../api/progress.js';
import type { Exchange } from '../exchange.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';

export function imageArchiveRoutes(deps: LoadDeps & SaveDeps): Route[] {
  return [
    route('GET', '/images/get', (x) =>
      save(
        x,
        deps,
        x.query.all('names').flatMap((names) => names.split(',').filter((name) => name !== '')),
      ),
    ),
    route('GET', '/images/{name...}/get', (x) => save(x, deps, [x.param('name')])),
    route('POST', '/images/load', (x) => load(x, deps), { body: 'archive' }),
  ];
}

async function save(x: Exchange, deps: SaveDeps, names: readonly string[]): Promise<void> {
  const { chunks } = await saveImages(deps, selectSaved(deps.images, names, platformOf(x)));
  const stream = x.stream(200, { 'Content-Type': 'application/x-tar' });
  await pump(chunks, stream);
}

/**
 * Loads an archive. The reply is 200 whatever comes, as the Docker engine has it: failures are the last line of the
 * stream.
 */
async function load(x: Exchange, deps: LoadDeps): Promise<void> {
  const isQuiet = x.query.flagOr('quiet', true);
  const platform = platformOf(x);
  const stream = x.stream(200, { 'Content-Type': 'application/json' });
  const send = (fact: ProgressFact): void => void stream.write(encodeProgress(fact));
  try {
    await loadImages(deps, {
      source: x.bodyPieces(),
      platform,
      signal: x.signal,
      onProgress: (id, bytes, total) => {
        if (!isQuiet) send({ kind: 'bytes', status: 'Loading layer', id, current: bytes, total });
      },
      say: (line) => void stream.write(encodeRecord({ stream: line })),
    });
  } catch (error) {
    send({ kind: 'failed', message: messageOf(error) });
  }
  stream.end();
}

function platformOf(x: Exchange): Platform | undefined {
  if (!x.atLeast(1, 48)) return undefined;
  if (x.query.all('platform').length > 1) throw invalid('multiple platform parameters not supported');
  const text = x.query.text('platform');
  return text === '' ? undefined : platformObject(text);
}
