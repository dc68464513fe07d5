/** The main context of a build: a directory of the client's, or an archive that it sends once. */
import { notImplemented } from '../../errors/engine-error.js';
import type { PieceSource } from '../../ports/archives.js';
import type { BuildContext } from '../../ports/build.js';
import { directoryContext, inStep, type OrderedBuild } from './ordered-build.js';
import { pulledBytes } from './session-services.js';

/** An archive on the client's standard input has an address of this host. */
const UPLOAD = 'http://buildkit-session/';

export interface ClosableContext extends BuildContext {
  /** Removes the files. */
  close(): Promise<void>;
}

export interface OpenContext {
  readonly context: BuildContext;
  /** The Dockerfile is in it, too, unless the client names a directory for it. */
  readonly hasDockerfile: boolean;
  close(): Promise<void>;
}

/** @param unpack unpacks an archive of any compression into a directory of its own. */
export async function openMainContext(
  build: OrderedBuild,
  unpack: (source: PieceSource) => Promise<ClosableContext>,
): Promise<OpenContext> {
  const { remoteContext, contextDirectory } = build.attrs;
  if (remoteContext === undefined) {
    const context = directoryContext(build.directory(contextDirectory));
    return { context, hasDockerfile: false, close: () => Promise.resolve() };
  }
  if (!remoteContext.startsWith(UPLOAD))
    throw notImplemented('this engine cannot fetch a build context from an address: clone or download it first');
  const session = await build.session();
  const path = remoteContext.slice(UPLOAD.length - 1);
  const context = await inStep(build, '[internal] load remote build context', 'transferring context:', (bytes) =>
    unpack(pieceSource(pulledBytes(session, path, build.job.signal), bytes)),
  );
  const hasDockerfile = !build.order.attrs.has('dockerfilekey');
  return { context, hasDockerfile, close: () => context.close() };
}

/** Presents bytes that are asked for as a source that sends by itself. */
function pieceSource(bytes: AsyncIterable<Uint8Array>, count: (total: number) => void): PieceSource {
  let wake: (() => void) | undefined;
  let isPaused = false;
  const resumed = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  return {
    read: (onPiece, onEnd) => {
      const copy = async (): Promise<void> => {
        let total = 0;
        for await (const piece of bytes) {
          if (isPaused) await resumed();
          onPiece(piece);
          count((total += piece.length));
        }
      };
      copy().then(
        () => onEnd(undefined),
        (error: unknown) => onEnd(error instanceof Error ? error : new Error(String(error))),
      );
    },
    pause: () => (isPaused = true),
    resume: () => {
      isPaused = false;
      wake?.();
    },
  };
}
