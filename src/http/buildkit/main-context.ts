/** The main context of a build: a directory of the client's, an archive that it sends once, or one at an address. */
import { CONTEXT_FILE, type RemoteContext } from '../../build/sources/remote-context.js';
import { parseGitReference, withoutLogin } from '../../build/sources/git-url.js';
import { isBadArchive } from '../../build/tar-context.js';
import { EngineError, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { RemoteOrder } from '../../ports/build-sources.js';
import type { ArchiveSource, PieceSource } from '../../ports/archives.js';
import type { BuildContext, BuildMaterial, CountBytes } from '../../ports/build.js';
import { directoryContext, inStep, type OrderedBuild } from './ordered-build.js';
import type { RequestBodies } from './request-bodies.js';
import { pulledBytes } from './session-services.js';

/** An archive on the client's standard input has an address of this host. */
const UPLOAD = 'http://buildkit-session/';
const IGNORE_FILE = '.dockerignore';

export interface ClosableContext extends BuildContext {
  /** Removes the files. */
  close(): Promise<void>;
  /** The context is one file. */
  readonly onlyFile?: string | undefined;
}

export interface OpenContext {
  readonly context: BuildContext;
  /** The Dockerfile is in it, too, unless the client names a directory for it. */
  readonly hasDockerfile: boolean;
  /** The context is one file, which is the Dockerfile. */
  readonly onlyFile?: string;
  /** Set when it was at an address. */
  readonly material?: BuildMaterial;
  close(): Promise<void>;
}

export interface ContextParts {
  /** Unpacks an archive of any compression into a directory of its own; what is none becomes the only file there. */
  readonly unpack: (source: ArchiveSource) => Promise<ClosableContext>;
  /** Contexts that have come with requests. */
  readonly bodies: RequestBodies;
  readonly fetch: (order: RemoteOrder, signal: AbortSignal) => Promise<RemoteContext>;
}

export async function openMainContext(
  build: OrderedBuild,
  { unpack, fetch, bodies }: ContextParts,
): Promise<OpenContext> {
  const { remoteContext, contextDirectory } = build.attrs;
  if (remoteContext === undefined) {
    const context = askedAhead(directoryContext(build.directory(contextDirectory)), IGNORE_FILE);
    return { context, hasDockerfile: false, close: () => Promise.resolve() };
  }
  const hasDockerfile = !build.order.attrs.has('dockerfilekey');
  const body = bodies.take(remoteContext);
  if (body !== undefined) {
    const context = await unpacked(inStep(build, '[internal] load remote build context', '', () => unpack(body)));
    return unpackedContext(context, hasDockerfile);
  }
  if (!remoteContext.startsWith(UPLOAD)) return { ...(await fetched(build, remoteContext, fetch)), hasDockerfile };
  const session = await build.session();
  const path = remoteContext.slice(UPLOAD.length - 1);
  const context = await unpacked(
    inStep(build, '[internal] load remote build context', 'transferring context:', (bytes) =>
      unpack(pieceSource(pulledBytes(session, path, build.job.signal), bytes)),
    ),
  );
  return unpackedContext(context, hasDockerfile);
}

function unpackedContext(context: ClosableContext, hasDockerfile: boolean): OpenContext {
  const { onlyFile } = context;
  return { context, hasDockerfile, ...(onlyFile !== undefined && { onlyFile }), close: () => context.close() };
}

/** Asks for a file at once that nearly every build reads soon, so that the client need not be waited for then. */
function askedAhead(context: BuildContext, path: string): BuildContext {
  let total = 0;
  let count: CountBytes = (bytes) => (total = bytes);
  const asked = context.readFile(path, (bytes) => count(bytes));
  asked.catch(() => undefined);
  return {
    readFile: (name, bytes) => {
      if (name !== path) return context.readFile(name, bytes);
      if (bytes !== undefined) count = bytes;
      if (total > 0) bytes?.(total);
      return asked;
    },
    tree: (...order) => context.tree(...order),
  };
}

/** BuildKit finds a bad archive out when it looks for the Dockerfile. */
function unpacked(unpacking: Promise<ClosableContext>): Promise<ClosableContext> {
  return unpacking.catch((error: unknown) => {
    throw isBadArchive(error) ? unreadable(error) : error;
  });
}

function unreadable(error: unknown): EngineError {
  return new EngineError('internal', `failed to read dockerfile: ${messageOf(error)}`, { cause: error });
}

async function fetched(
  build: OrderedBuild,
  url: string,
  fetch: ContextParts['fetch'],
): Promise<Omit<OpenContext, 'hasDockerfile'>> {
  const { job, attrs } = build;
  const isRepository = parseGitReference(url) !== undefined;
  const shown = withoutLogin(url);
  const step = isRepository ? `[internal] load git source ${shown}` : '[internal] load remote build context';
  try {
    const { context, kind, digest } = await inStep(build, step, 'transferring context:', (bytes, vertex) =>
      fetch(
        {
          secret: build.secret,
          sshAgent: build.sshAgent,
          url,
          checksum: '',
          keepGitDir: isTrue(attrs.buildArgs.get('BUILDKIT_CONTEXT_KEEP_GIT_DIR')) || undefined,
          output: (...line) => job.progress.log(vertex, ...line),
          progress: bytes,
        },
        job.signal,
      ),
    );
    const material = { uri: shown, digest };
    return { context, material, ...(kind === 'file' && { onlyFile: CONTEXT_FILE }), close: () => context.close() };
  } catch (error) {
    throw explained(error, isRepository ? 'failed to read dockerfile' : 'failed to read downloaded context');
  }
}

/** BuildKit finds out at the first use of the context that it cannot be had. */
function explained(error: unknown, what: string): unknown {
  if (!isEngineError(error) || error.kind === 'cancelled') return error;
  if (isBadArchive(error)) return unreadable(error);
  const isLate = error.code === 'BAD_SUBDIR' || error.code === 'DIGEST_MISMATCH';
  return new EngineError('internal', `${what}: ${isLate ? '' : 'failed to load cache key: '}${messageOf(error)}`, {
    cause: error,
  });
}

function isTrue(value: string | undefined): boolean {
  return value !== undefined && ['1', 't', 'true', 'y', 'yes', 'on'].includes(value.toLowerCase());
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
