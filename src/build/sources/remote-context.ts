/** Contexts of builds that are at addresses: repositories, archives, and Dockerfiles without any other file. */
import type { BuildSources, LoadedSource, RemoteOrder } from '../../ports/build-sources.js';
import { UnpackedContext } from '../tar-context.js';

/** Name of the only file of a context that is no archive. */
export const CONTEXT_FILE = 'context';

export interface RemoteContext extends Pick<LoadedSource, 'kind' | 'contentType' | 'digest'> {
  readonly context: UnpackedContext;
}

/** @throws EngineError as the source does. */
export async function openRemoteContext(
  sources: BuildSources,
  order: RemoteOrder,
  signal: AbortSignal,
): Promise<RemoteContext> {
  const loaded = await sources.load({ ...order, unpacks: true, fileName: CONTEXT_FILE }, signal);
  const { kind, contentType, digest, directory } = loaded;
  return { kind, contentType, digest, context: new UnpackedContext(directory, () => loaded.release()) };
}
