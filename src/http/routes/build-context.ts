/** The context of a classic build: the tar in the request, or what is at the address that `remote` names. */
import { CONTEXT_FILE, type RemoteContext } from '../../build/sources/remote-context.js';
import { parseGitReference, withoutLogin } from '../../build/sources/git-url.js';
import { refusal } from '../../build/sources/http-source.js';
import { isBadArchive } from '../../build/tar-context.js';
import { EngineError, internal, invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { ArchiveSource } from '../../ports/archives.js';
import type { RemoteOrder } from '../../ports/build-sources.js';
import type { BuildContext, ClassicEvent } from '../../ports/build.js';
import type { Exchange } from '../exchange.js';

/** A context of files that are removed when the build has ended. */
export interface ClosableContext extends BuildContext {
  close(): Promise<void>;
}

export interface ContextParts {
  readonly unpack: (source: ArchiveSource) => Promise<ClosableContext>;
  readonly fetch: (order: RemoteOrder, signal: AbortSignal) => Promise<RemoteContext>;
}

export interface OpenedContext {
  readonly context: ClosableContext;
  /** Name of the Dockerfile in it. */
  readonly dockerfile: string;
}

/** Repositories without a branch were built from this one when all default branches had one name. */
const OLD_DEFAULT_BRANCH = 'master';
const PLAIN_TYPES = new Set(['', 'application/octet-stream', 'text/plain']);

/** @throws EngineError when it cannot be had. */
export async function openContext(
  x: Exchange,
  { unpack, fetch }: ContextParts,
  onEvent: (event: ClassicEvent) => void,
): Promise<OpenedContext> {
  const dockerfile = x.query.text('dockerfile') || 'Dockerfile';
  const url = x.query.text('remote');
  if (url === '') return { context: await unpack(x.bodySource()), dockerfile };
  if (url === 'client-session')
    throw invalid(
      'experimental session with v1 builder is no longer supported, use builder version v2 (BuildKit) instead',
    );
  if (parseGitReference(url) !== undefined) return { context: await openRepository(url, fetch, x.signal), dockerfile };
  if (!/^https?:\/\//.test(url)) throw internal(`remoteURL (${withoutLogin(url)}) could not be recognized as URL`);
  return openAddress(url, dockerfile, { fetch, onEvent, signal: x.signal });
}

async function openRepository(
  url: string,
  fetch: ContextParts['fetch'],
  signal: AbortSignal,
): Promise<ClosableContext> {
  const load = async (address: string): Promise<ClosableContext> =>
    (await fetch({ url: address, checksum: '', keepGitDir: true }, signal)).context;
  const reference = parseGitReference(url);
  if (reference?.ref !== '') return load(url);
  try {
    const subdir = reference.subdir === '' ? '' : `:${reference.subdir}`;
    return await load(`${url.replace(/#.*$/s, '')}#${OLD_DEFAULT_BRANCH}${subdir}`);
  } catch (error) {
    if (!isEngineError(error) || error.code !== 'NO_REF') throw error;
    return load(url);
  }
}

interface Download extends Pick<ContextParts, 'fetch'> {
  readonly onEvent: (event: ClassicEvent) => void;
  readonly signal: AbortSignal;
}

/** A file that is no archive is a Dockerfile. */
async function openAddress(
  url: string,
  dockerfile: string,
  { fetch, onEvent, signal }: Download,
): Promise<OpenedContext> {
  const shown = withoutLogin(url);
  const progress = (current: number): void =>
    onEvent({ kind: 'download', status: shown, id: 'Downloading context', current });
  let opened: RemoteContext;
  try {
    opened = await fetch({ url, checksum: '', keepGitDir: undefined, progress }, signal);
  } catch (error) {
    if (!isEngineError(error) || error.kind === 'cancelled' || isBadArchive(error)) throw error;
    const { status, reason } = refusal(error) ?? {};
    const why = status === undefined ? messageOf(error) : `failed to GET ${shown} with status ${status}: ${reason}`;
    throw new EngineError(error.kind, `error downloading remote context ${shown}: ${why}`, { cause: error });
  }
  const { context, kind, contentType } = opened;
  if (kind !== 'file') return { context, dockerfile };
  const type = contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (PLAIN_TYPES.has(type)) return { context, dockerfile: CONTEXT_FILE };
  await context.close();
  throw internal(
    `error detecting content type for remote ${shown}: unsupported Content-Type ${JSON.stringify(contentType)}`,
  );
}
