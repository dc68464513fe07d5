/** Files at addresses. One whose server names its version is kept, and asked for again with that name. */
import { createHash } from 'node:crypto';
import { copyFile, constants, link, mkdir, mkdtemp, rename, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { internal, invalid, isEngineError } from '../../errors/engine-error.js';
import type { KeptDirectoryOrder } from '../../ports/build-cache.js';
import type { LoadedSource, RemoteOrder } from '../../ports/build-sources.js';
import type { HttpLimits } from '../../registry/http.js';
import type { WorkerPool } from '../../workers/pool.js';
import { roomBelow } from './disk-room.js';
import type { FetchUrlOutput, FetchUrlReport } from './fetch-url.js';
import { withoutLogin } from './git-url.js';
import type { KeptSources } from './kept-sources.js';
import type { SourceTasks } from './source-tasks.js';

/** Slow servers are waited for, silent ones are not. */
const LIMITS: HttpLimits = { connectMs: 30_000, responseMs: 300_000, idleMs: 120_000 };
const FILE = 'content';
const UNNAMED = '__unnamed__';
const DIGEST = /^sha256:[0-9a-f]{64}$/;

export interface HttpParts {
  readonly kept: KeptSources;
  readonly tasks: SourceTasks;
  readonly pool: WorkerPool;
  readonly tmpDir: string;
}

interface Known {
  readonly etag: string;
  readonly digest: string;
  readonly contentType: string;
}

export class HttpSource {
  constructor(private readonly parts: HttpParts) {}

  /** @throws EngineError in BuildKit's words. */
  async load(order: RemoteOrder, signal: AbortSignal): Promise<LoadedSource> {
    requireDigest(order.checksum);
    const name = order.fileName ?? fileName(order.url);
    const place = await mkdtemp(join(this.parts.tmpDir, 'build-source-'));
    const release = (): Promise<void> => rm(place, { recursive: true, force: true });
    try {
      const directory = join(place, 'root');
      await mkdir(directory, { mode: 0o755 });
      const path = join(directory, name);
      const { digest, contentType } = await this.#bring(order, path, signal);
      if (order.checksum !== '' && order.checksum !== digest)
        throw invalid(`digest mismatch ${digest}: ${order.checksum}`, { code: 'DIGEST_MISMATCH' });
      const loaded = { release, key: digest, digest: { sha256: digest.slice('sha256:'.length) }, contentType };
      const tree = order.unpacks === true ? await this.#unpacked(path, place, signal) : undefined;
      return tree === undefined
        ? { ...loaded, directory, kind: 'file', path: asPattern(name) }
        : { ...loaded, directory: tree, kind: 'archive', path: '/' };
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** Resolves with the directory of what was in an archive; undefined for any other file. */
  async #unpacked(path: string, place: string, signal: AbortSignal): Promise<string | undefined> {
    const directory = join(place, 'unpacked');
    await mkdir(directory, { mode: 0o755 });
    const isArchive = await this.parts.pool.run('unpack-source', { path, directory }, { signal });
    return isArchive ? directory : undefined;
  }

  async #bring(
    order: Pick<RemoteOrder, 'url' | 'progress'>,
    path: string,
    signal: AbortSignal,
  ): Promise<Pick<Known, 'digest' | 'contentType'>> {
    const known = await this.#lendKept(order.url, path, signal);
    const fetched = await this.#fetch(order, path, known, signal);
    if (!fetched.isNew && known !== undefined) return known;
    if (!fetched.isNew) throw internal('invalid response status 304');
    const modified = new Date(fetched.modifiedMs ?? 0);
    await utimes(path, modified, modified);
    if (fetched.etag !== '') await this.#keep(order.url, path, fetched, signal);
    return fetched;
  }

  async #fetch(
    { url, progress }: Pick<RemoteOrder, 'url' | 'progress'>,
    path: string,
    known: Known | undefined,
    signal: AbortSignal,
  ): Promise<FetchUrlOutput> {
    const { url: plain, headers } = request(url);
    const fresh = `${path}.new`;
    const input = {
      url: plain,
      headers: { ...headers, ...(known !== undefined && { 'if-none-match': known.etag }) },
      path: fresh,
      maxBytes: await roomBelow(this.parts.tmpDir),
      limits: LIMITS,
    };
    let told = -1;
    const tell = ({ current, total }: FetchUrlReport): void => {
      if (current !== told) progress?.((told = current), total);
    };
    const fetched = await this.parts.tasks.fetchUrl(input, tell, signal);
    if (fetched.isNew) await rename(fresh, path);
    return fetched;
  }

  /** Puts the kept content at `path`. Resolves with what is known of it; undefined when nothing is kept. */
  #lendKept(url: string, path: string, signal: AbortSignal): Promise<Known | undefined> {
    return this.parts.kept.use(keptOrder(url), signal, async ({ directory, facts }) => {
      if (facts === undefined) return undefined;
      await share(join(directory, FILE), path);
      return facts as unknown as Known;
    });
  }

  async #keep(url: string, path: string, fetched: FetchUrlOutput, signal: AbortSignal): Promise<void> {
    const { etag, digest, contentType } = fetched;
    await this.parts.kept.use(keptOrder(url), signal, ({ directory, change }) =>
      change(async () => {
        await rm(join(directory, FILE), { force: true });
        await share(path, join(directory, FILE));
        return { etag, digest, contentType };
      }),
    );
  }
}

/** Names the content of an address for the cache, which writes names down: a login in it is a digest there. */
export function keptOrder(url: string): KeptDirectoryOrder {
  const shown = withoutLogin(url);
  const login = shown === url ? '' : ` ${createHash('sha256').update(url).digest('hex')}`;
  return { id: `http ${shown}${login}`, type: 'regular', description: `http url ${shown}` };
}

/** Both names stand for one file, which nobody changes; on two file systems it has to be copied. */
async function share(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
    await copyFile(from, to, constants.COPYFILE_FICLONE);
  }
}

function requireDigest(checksum: string): void {
  if (checksum === '') return;
  const algorithm = checksum.slice(0, Math.max(0, checksum.indexOf(':')));
  if (algorithm === '') throw invalid('invalid checksum digest format', { code: 'BAD_CHECKSUM' });
  if (algorithm !== 'sha256') throw invalid('unsupported digest algorithm', { code: 'BAD_CHECKSUM' });
  if (!DIGEST.test(checksum)) throw invalid('invalid checksum digest length', { code: 'BAD_CHECKSUM' });
}

/** A user and a password go into a header, which does not follow to other servers. */
function request(text: string): { readonly url: string; readonly headers: Record<string, string> } {
  let url: URL;
  try {
    url = new URL(text);
  } catch (error) {
    throw invalid(`parse ${JSON.stringify(withoutLogin(text))}: invalid URL`, { cause: error });
  }
  const { username, password } = url;
  url.username = url.password = url.hash = '';
  if (username === '' && password === '') return { url: url.href, headers: {} };
  const user = `${unescaped(username)}:${unescaped(password)}`;
  return { url: url.href, headers: { authorization: `Basic ${Buffer.from(user).toString('base64')}` } };
}

/** Returns the file of an address as a source of COPY. */
export function sourcePath(url: string): string {
  return asPattern(fileName(url));
}

function asPattern(name: string): string {
  return `/${name.replace(/[*?[\\]/g, '\\$&')}`;
}

/** Returns the last part of the path, which names the file. */
function fileName(url: string): string {
  const path = URL.canParse(url) ? new URL(url).pathname : '';
  const name = unescaped(path.split('/').filter(Boolean).at(-1) ?? '').replaceAll('\0', '');
  const last = name.slice(name.lastIndexOf('/') + 1);
  const isName = last !== '' && last !== '.' && last !== '..' && Buffer.byteLength(last) <= 250;
  return isName ? last : UNNAMED;
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Tells whether a server has refused with this status. */
export function refusal(error: unknown): { readonly status: string; readonly reason: string } | undefined {
  const { status, reason } = isEngineError(error) ? error.details : {};
  return typeof status === 'string' && typeof reason === 'string' ? { status, reason } : undefined;
}
