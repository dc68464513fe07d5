/** Worker task: tells what is at a path of a container. */
import type { ContainerView, PathStat } from '../../ports/archives.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { toBytePath } from '../byte-path.js';
import { findPath, statPath } from '../container-path.js';
import { withView } from './container-view.js';

export function pathStat({
  view,
  path,
  idMaps,
}: {
  readonly view: ContainerView;
  readonly path: string;
  readonly idMaps: IdMaps | undefined;
}): Promise<PathStat> {
  return withView(view, idMaps, (rootFd) => {
    const bytes = toBytePath(path);
    const found = findPath(rootFd, bytes);
    try {
      return statPath(rootFd, bytes, found);
    } finally {
      found.close();
    }
  });
}
