/**
 * Trees of git repositories. What is fetched of a repository is kept, so a later build fetches a new commit only; the
 * files are written anew for each build.
 */
import { lstat, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { EngineError, forbidden, internal, invalid } from '../../errors/engine-error.js';
import type { LoadedSource, RemoteOrder } from '../../ports/build-sources.js';
import { withinRoom } from './disk-room.js';
import { type GitAccess, GitCommand } from './git-command.js';
import { findCommit, type FoundCommit } from './git-refs.js';
import type { GitReference } from './git-url.js';
import type { HttpParts } from './http-source.js';
import type { OpenEntry } from './kept-sources.js';

type GitOrder = Pick<RemoteOrder, 'secret' | 'sshAgent' | 'output' | 'checksum' | 'keepGitDir'>;

interface Fetch {
  readonly git: GitCommand;
  readonly reference: GitReference;
  readonly access: GitAccess;
  readonly commit: FoundCommit;
}

const SHA1_DIGITS = 40;

export class GitSource {
  constructor(private readonly parts: HttpParts) {}

  /** @throws EngineError in BuildKit's words. */
  async load(written: GitReference, order: GitOrder, signal: AbortSignal): Promise<LoadedSource> {
    const reference = withOptions(written, order);
    const place = await mkdtemp(join(this.parts.tmpDir, 'build-source-'));
    const release = (): Promise<void> => rm(place, { recursive: true, force: true });
    let opened: OpenAccess | undefined;
    try {
      const { access } = (opened = await openAccess(reference, order));
      return await withinRoom(place, signal, async (until) => {
        const git = new GitCommand(this.parts.tasks, order.output, until);
        const commit = await findCommit(git, reference, { directory: place, access });
        const root = join(place, 'root');
        await mkdir(root, { mode: 0o755 });
        await this.#checkOut({ git, reference, access, commit }, root, until);
        const directory = await subdirectory(root, reference.subdir);
        const key = JSON.stringify(['git', commit.sha, reference.subdir, reference.keepGitDir, reference.submodules]);
        const digest = { [commit.sha.length === SHA1_DIGITS ? 'sha1' : 'sha256']: commit.sha };
        return { directory, release, key, digest, path: '/', kind: 'repository', contentType: '' };
      });
    } catch (error) {
      await release();
      throw error;
    } finally {
      await opened?.close();
    }
  }

  async #checkOut(fetch: Fetch, root: string, signal: AbortSignal): Promise<void> {
    const { git, reference, access, commit } = fetch;
    const { remote, scheme, submodules, keepGitDir } = reference;
    await git.run(['init', '--quiet', '--template=', root], { directory: root });
    const description = `git repository ${remote}`;
    const kept = { id: `git ${remote}`, type: 'source.git.checkout', description } as const;
    await this.parts.kept.use(kept, signal, async (entry) => {
      await bringCommit(fetch, entry);
      const [from, what] = [entry.directory, `+${commit.sha}:${commit.name}`];
      const args = ['fetch', '--quiet', '--no-tags', '--depth=1', '--update-head-ok', `file://${from}`, what];
      await git.run(args, { directory: root, isLocal: true });
    });
    await git.run(['checkout', '--quiet', '--force', '--detach', commit.sha], { directory: root });
    await git.run(['config', 'remote.origin.url', remote], { directory: root });
    await git.run(['config', 'remote.origin.fetch', '+refs/heads/*:refs/remotes/origin/*'], { directory: root });
    if (submodules && (await hasModules(root))) {
      const depth = scheme === 'git' || scheme === 'ssh' ? [] : ['--depth=1'];
      // A module that an attempt has fetched only, as another one failed, has no files unless it is forced.
      const args = ['submodule', 'update', '--init', '--recursive', '--force', ...depth];
      await git.run(args, { directory: root, access }).catch((error: unknown) => {
        throw explained(error, `failed to update submodules for ${remote}`);
      });
    }
    if (keepGitDir !== true) await rm(join(root, '.git'), { recursive: true, force: true });
  }
}

function withOptions(written: GitReference, { checksum, keepGitDir }: GitOrder): GitReference {
  if (checksum !== '' && written.checksum !== '' && checksum !== written.checksum)
    throw invalid(`checksum mismatch: ${JSON.stringify(written.checksum)} vs ${JSON.stringify(checksum)}`);
  return { ...written, checksum: checksum || written.checksum, keepGitDir: keepGitDir ?? written.keepGitDir ?? false };
}

/** Fetches the commit into the kept repository unless it is there. A server that cannot send one alone sends all. */
async function bringCommit({ git, reference, access, commit }: Fetch, entry: OpenEntry): Promise<void> {
  const { directory, facts, change } = entry;
  const { remote } = reference;
  const isThere = async (): Promise<boolean> =>
    (await git.attempt(['cat-file', '-e', `${commit.sha}^{commit}`], { directory })).exitCode === 0;
  if (facts !== undefined && (await isThere())) return;
  await change(async () => {
    if (facts === undefined) await git.run(['init', '--bare', '--quiet', '--template=', directory], { directory });
    const fetch = ['fetch', '--no-tags', '--force', '--update-head-ok'];
    const attempts = [
      ...(commit.fetchName === commit.sha ? [] : [['--depth=1', remote, `+${commit.fetchName}:refs/kept/named`]]),
      ['--depth=1', remote, `+${commit.sha}:refs/kept/commit`],
      [remote, '+refs/*:refs/kept/all/*'],
    ];
    let failure: unknown;
    for (const attempt of attempts) {
      failure = await git.run([...fetch, ...attempt], { directory, access }).then(
        () => undefined,
        (error: unknown) => error,
      );
      if (failure === undefined && (await isThere())) break;
    }
    if (!(await isThere()))
      throw failure === undefined
        ? internal(`failed to fetch remote ${remote}: it does not have ${commit.sha}`)
        : explained(failure, `failed to fetch remote ${remote}`);
    return {};
  });
}

async function hasModules(root: string): Promise<boolean> {
  const found = await lstat(join(root, '.gitmodules')).catch(() => undefined);
  return found?.isFile() ?? false;
}

/** Links would lead out of the tree, so every part of the path must be a directory. */
async function subdirectory(root: string, subdir: string): Promise<string> {
  const parts: string[] = [];
  for (const part of subdir.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  const shown = `/${parts.join('/')}`;
  let at = root;
  for (const part of parts) {
    at = join(at, part);
    const found = await lstat(at).catch(() => undefined);
    if (found === undefined)
      throw invalid(
        `invalid subdir ${shown}: failed to lstat ${JSON.stringify(part)}: statat ${part}: no such file or directory`,
        { code: 'BAD_SUBDIR' },
      );
    if (!found.isDirectory())
      throw invalid(`invalid subdir ${shown}: git subpath ${JSON.stringify(shown)} contains non-directory "${part}"`, {
        code: 'BAD_SUBDIR',
      });
  }
  return at;
}

const SECRETS = (host: string): readonly (readonly [id: string, isHeader: boolean])[] => [
  [`GIT_AUTH_HEADER.${host}`, true],
  [`GIT_AUTH_TOKEN.${host}`, false],
  ['GIT_AUTH_HEADER', true],
  ['GIT_AUTH_TOKEN', false],
];

interface OpenAccess {
  readonly access: GitAccess;
  close(): Promise<void>;
}

const NOTHING: OpenAccess = { access: { login: undefined, agent: undefined }, close: () => Promise.resolve() };

/** Asks the client for what logs in: an agent for SSH, a secret for HTTP. */
async function openAccess({ scheme, host, login }: GitReference, { secret, sshAgent }: GitOrder): Promise<OpenAccess> {
  if (scheme === 'ssh') {
    const agent = await sshAgent?.('default');
    if (agent === undefined) return NOTHING;
    return { access: { login: undefined, agent: agent.socketPath }, close: () => agent.close() };
  }
  if (scheme === 'git') return NOTHING;
  const withHeader = (value: string): OpenAccess => ({
    ...NOTHING,
    access: { login: { origin: `${scheme}://${host}`, value }, agent: undefined },
  });
  const basic = (user: string): string => `basic ${Buffer.from(user).toString('base64')}`;
  if (login !== '') return withHeader(basic(login));
  for (const [id, isHeader] of SECRETS(host)) {
    const value = (await secret?.(id))?.toString().trim() ?? '';
    if (/[\r\n\0]/.test(value)) throw forbidden(`invalid characters in secret ${id}`);
    if (value !== '') return withHeader(isHeader ? value : basic(`x-access-token:${value}`));
  }
  return NOTHING;
}

function explained(error: unknown, what: string): unknown {
  if (!(error instanceof EngineError) || error.code !== 'GIT_FAILED') return error;
  return new EngineError('internal', `${what}: ${error.message}`, { code: 'GIT_FAILED', cause: error });
}
