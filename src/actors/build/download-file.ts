/** Files of the classic ADD that are at addresses, with the lines that tell of their download. */
import { withoutLogin } from '../../build/sources/git-url.js';
import { refusal } from '../../build/sources/http-source.js';
import { EngineError, isEngineError } from '../../errors/engine-error.js';
import type { BuildSources, LoadedSource } from '../../ports/build-sources.js';
import type { ClassicEvent } from '../../ports/build.js';

/** Code of errors that say why a file could not be had. */
export const DOWNLOAD_FAILED = 'DOWNLOAD_FAILED';

export interface DownloadOrder {
  readonly url: string;
  readonly checksum: string;
  /** As it was written; a slash at its end wants a name for the file. */
  readonly destination: string;
  readonly onEvent: (event: ClassicEvent) => void;
}

/** Tells whether the classic builder takes a source for an address: it knows those of HTTP only. */
export function isAddress(source: string): boolean {
  return /^https?:\/\//.test(source);
}

/** @throws EngineError in dockerd's words, code DOWNLOAD_FAILED. */
export async function downloadFile(
  sources: BuildSources,
  { url, checksum, destination, onEvent }: DownloadOrder,
  signal: AbortSignal,
): Promise<LoadedSource> {
  const progress = (current: number, total = -1): void =>
    onEvent({ kind: 'download', status: 'Downloading', current, total });
  const shown = withoutLogin(url);
  try {
    const loaded = await sources.load({ url, checksum, keepGitDir: undefined, isFile: true, progress }, signal);
    onEvent({ kind: 'text', text: '\n' });
    if (!isNameless(url) || !destination.endsWith('/')) return loaded;
    await loaded.release();
    throw failed(`cannot determine filename for source ${shown}`);
  } catch (error) {
    if (!isEngineError(error) || error.kind === 'cancelled') throw error;
    const { status, reason } = refusal(error) ?? {};
    throw failed(
      status === undefined ? error.message : `failed to GET ${shown} with status ${status}: ${reason}`,
      error,
    );
  }
}

function isNameless(url: string): boolean {
  return URL.canParse(url) && new URL(url).pathname.endsWith('/');
}

function failed(message: string, cause?: unknown): EngineError {
  return new EngineError('internal', message, { code: DOWNLOAD_FAILED, cause });
}
