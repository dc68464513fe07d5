/** Worker task: what is at a path of a container. */
import type { ContainerView, PathStat } from '../../ports/archives.js';
import { toBytePath } from '../byte-path.js';
import { findPath, statPath } from '../container-path.js';
import { withView } from './container-view.js';

export function pathStat({ view, path }: { readonly view: ContainerView; readonly path: string }): Promise<PathStat> {
  return withView(view, (rootFd) => {
    const bytes = toBytePath(path);
    const found = findPath(rootFd, bytes);
    try {
      return statPath(rootFd, bytes, found);
    } finally {
      found.close();
    }
  });
}
