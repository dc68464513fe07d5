/** Files at addresses that clients look into before they build, for as long as the job lasts that has asked. */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, open, readdir, readlink, stat } from 'node:fs/promises';
import { posix } from 'node:path';
import { cleanPath } from '../../build/files/paths.js';
import { withoutLogin } from '../../build/sources/git-url.js';
import { internal, invalid, notFound } from '../../errors/engine-error.js';
import type { BuildSources, LoadedSource } from '../../ports/build-sources.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import type { BuildJob } from './build-jobs.js';
import { goModeOf, kindOfFile } from './file-stat.js';
import type { Stat } from './proto/gen/session_pb.js';
import { inStep } from './ordered-build.js';
import type { Definition } from './proto/gen/common_pb.js';
import { secret } from './session-services.js';
import { sourceOrder } from './source-definition.js';
import type { Sessions } from './session.js';
import type { AgentSockets } from './agent-sockets.js';

/** Clients take messages up to 16 MiB. */
const MAX_READ_BYTES = 15 << 20;
const MAX_ENTRIES = 10_000;
const MAX_PATTERN_CHARS = 255;
/** One job may look at so many places. */
const MAX_SOURCES = 64;

export interface SourceReferencesParts {
  readonly sources: BuildSources;
  readonly sessions: Pick<Sessions, 'wait'>;
  readonly agents: AgentSockets;
}

type FileStat = Pick<Stat, 'path' | 'mode' | 'uid' | 'gid' | 'size' | 'modTime' | 'linkname'>;

interface Held {
  readonly job: BuildJob;
  readonly source: LoadedSource;
}

export class SourceReferences {
  readonly #held = new Map<string, Held>();

  constructor(private readonly parts: SourceReferencesParts) {}

  /** Fetches what a definition names. Resolves with the name of its files. @throws EngineError */
  async solve(job: BuildJob, definition: Definition): Promise<string> {
    if ([...this.#held.values()].filter((one) => one.job === job).length >= MAX_SOURCES)
      throw invalid(`more than ${MAX_SOURCES} sources in one job`);
    const order = sourceOrder(definition);
    const { sources, sessions, agents } = this.parts;
    const session = () => sessions.wait(job.request.session, job.signal);
    const name = `[internal] load source ${withoutLogin(order.url)}`;
    const source = await inStep({ job }, name, '', (_bytes, vertex) =>
      sources.load(
        {
          ...order,
          secret: async (id) => secret(await session(), id, job.signal),
          sshAgent: async (id) => agents.open(await session(), id),
          output: (...line) => job.progress.log(vertex, ...line),
        },
        job.signal,
      ),
    );
    const reference = randomUUID();
    this.#held.set(reference, { job, source });
    const forget = (): void => {
      this.#held.delete(reference);
      // Files that cannot be removed now go when the daemon starts.
      source.release().catch(() => undefined);
    };
    job.signal.addEventListener('abort', forget, { once: true });
    if (job.signal.aborted) forget();
    return reference;
  }

  /** @param range in bytes; a length of 0 is all. @throws EngineError not-found; invalid for what is too long. */
  async readFile(
    job: BuildJob,
    reference: string,
    path: string,
    range: { readonly offset: number; readonly length: number },
  ): Promise<Buffer> {
    return this.#at(job, reference, path, async (at) => {
      const found = await stat(at);
      // To open a FIFO would take a thread for ever.
      if (!found.isFile()) throw invalid(`${path} is not a regular file`);
      const rest = Math.max(0, found.size - range.offset);
      const bytes = range.length > 0 ? Math.min(range.length, rest) : rest;
      if (bytes > MAX_READ_BYTES) throw invalid(`${path} is too large: ask for parts of it`);
      const file = await open(at, constants.O_RDONLY);
      try {
        const buffer = Buffer.alloc(bytes);
        const { bytesRead } = await file.read(buffer, 0, bytes, range.offset);
        return buffer.subarray(0, bytesRead);
      } finally {
        await file.close();
      }
    });
  }

  async statFile(job: BuildJob, reference: string, path: string): Promise<FileStat> {
    const clean = cleanPath(path);
    const { dir, base: name } = posix.parse(clean);
    // A link is described itself.
    return this.#at(job, reference, dir, (at) => statOf(`${at}/${name || '.'}`, name), path);
  }

  /** @param pattern of names, with `*` and `?`; empty means all. */
  async readDirectory(job: BuildJob, reference: string, path: string, pattern: string): Promise<FileStat[]> {
    if (pattern.length > MAX_PATTERN_CHARS) throw invalid('the include pattern is too long');
    return this.#at(job, reference, path, async (at) => {
      const names = (await readdir(at)).filter((name) => pattern === '' || matches(name, pattern)).sort();
      if (names.length > MAX_ENTRIES) throw invalid(`${path} has more than ${MAX_ENTRIES} files`);
      const found: FileStat[] = [];
      for (const name of names) found.push(await statOf(`${at}/${name}`, name));
      return found;
    });
  }

  /** Opens a path, whose links lead nowhere outside the files. */
  async #at<T>(
    job: BuildJob,
    reference: string,
    path: string,
    action: (at: string) => Promise<T>,
    shown = path,
  ): Promise<T> {
    const held = this.#held.get(reference);
    // The names of a job's files are its own.
    if (held?.job !== job) throw internal(`no such ref: ${reference.slice(0, 100)}`);
    const root = await open(held.source.directory, constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      const fd = openInRoot(root.fd, cleanPath(path), O_PATH);
      try {
        return await action(`/proc/self/fd/${fd}`);
      } finally {
        closeFd(fd);
      }
    } catch (error) {
      const { code } = error as { readonly code?: string };
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP')
        throw notFound(`${shown}: no such file or directory`, { cause: error });
      throw error;
    } finally {
      await root.close();
    }
  }
}

async function statOf(at: string, path: string): Promise<FileStat> {
  const found = await lstat(at, { bigint: true });
  const kind = kindOfFile(found);
  return {
    path,
    mode: goModeOf(kind, Number(found.mode & 0o7777n)),
    uid: Number(found.uid),
    gid: Number(found.gid),
    size: found.size,
    modTime: found.mtimeNs,
    linkname: kind === 'symlink' ? await readlink(at) : '',
  };
}

/** The cost is the product of the lengths at most: a star is tried again only from the last one on. */
function matches(name: string, pattern: string): boolean {
  let [at, mark, star, tried] = [0, 0, -1, 0];
  while (at < name.length) {
    if (mark < pattern.length && (pattern[mark] === '?' || pattern[mark] === name[at]) && pattern[mark] !== '*') {
      at++;
      mark++;
    } else if (pattern[mark] === '*') {
      star = mark++;
      tried = at;
    } else if (star >= 0) {
      mark = star + 1;
      at = ++tried;
    } else return false;
  }
  while (pattern[mark] === '*') mark++;
  return mark === pattern.length;
}
