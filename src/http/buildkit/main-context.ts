/** The main context of a build, whatever form the client gives it. */
import { EngineError } from '../../errors/engine-error.js';
import type { BuildContext } from '../../ports/build.js';
import type { LoadedDockerfile } from './dockerfile-source.js';
import { directoryContext, type OrderedBuild } from './ordered-build.js';

export async function mainContext(build: OrderedBuild, { files }: LoadedDockerfile): Promise<BuildContext> {
  const { remoteContext, contextDirectory } = build.attrs;
  if (remoteContext !== undefined)
    throw new EngineError('not-implemented', 'this engine takes contexts from directories of the client only, so far');
  return directoryContext(build.directory(contextDirectory), files);
}
