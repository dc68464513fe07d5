/** Finds the commit that a reference of a remote repository stands for at this moment. */
import { EngineError, internal, invalid } from '../../errors/engine-error.js';
import type { GitCommand, GitRun } from './git-command.js';
import type { GitReference } from './git-url.js';

export interface FoundCommit {
  readonly sha: string;
  /** The server is asked for this: the full name of the reference, or the commit. */
  readonly fetchName: string;
  /** Name for it in a clone. */
  readonly name: string;
}

interface Answer {
  readonly sha: string;
  readonly ref: string;
  /** The tag itself, where it is an object of its own. */
  readonly tag?: string;
}

const COMMIT = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;
const HEADS = 'refs/heads/';
const TAGS = 'refs/tags/';

/** @throws EngineError in BuildKit's words: it is not there, or another one than the checksum says. */
export async function findCommit(
  git: GitCommand,
  { remote, ref, checksum }: GitReference,
  run: GitRun,
): Promise<FoundCommit> {
  if (checksum !== '' && !/^[0-9a-fA-F]{1,64}$/.test(checksum))
    throw invalid(`invalid checksum ${checksum} for Git URL, expected hex commit hash`);
  const found: Answer = COMMIT.test(ref) ? { sha: ref, ref } : await ask(git, remote, ref, run);
  if (!COMMIT.test(found.sha)) throw internal(`invalid commit sha ${JSON.stringify(found.sha)}`);
  const wanted = checksum.toLowerCase();
  if (![found.sha, found.tag ?? ''].some((sha) => sha.startsWith(wanted)))
    throw invalid(`expected checksum to match ${checksum}, got ${found.sha}`);
  return { sha: found.sha, fetchName: found.ref, name: localName(found.ref) };
}

async function ask(git: GitCommand, remote: string, ref: string, run: GitRun): Promise<Answer> {
  if (ref === '') return defaultBranch(git, remote, run);
  const listed = await explain(
    git.run(['ls-remote', '--', remote, ref, `${ref}^{}`], run),
    `failed to fetch remote ${remote}`,
  );
  const shas = new Map(lines(listed).map(([sha, name]) => [name, sha]));
  const short = ref.replace(/^refs\//, '');
  for (const name of [`${HEADS}${ref}`, `${TAGS}${ref}`, `refs/${short}`, ref === 'HEAD' ? ref : '']) {
    const sha = shas.get(name);
    if (sha === undefined) continue;
    const peeled = shas.get(`${name}^{}`);
    return peeled === undefined ? { sha, ref: name } : { sha: peeled, ref: name, tag: sha };
  }
  throw invalid(`repository does not contain ref ${ref}, output: ${JSON.stringify(listed)}`, { code: 'NO_REF' });
}

/** HEAD of a server that does not name a branch is a commit. */
async function defaultBranch(git: GitCommand, remote: string, run: GitRun): Promise<Answer> {
  const listed = await explain(
    git.run(['ls-remote', '--symref', '--', remote, 'HEAD'], run),
    `error fetching default branch for repository ${remote}`,
  );
  const found = lines(listed);
  const branch = found.find(([target]) => target.startsWith('ref: '))?.[0].slice('ref: '.length);
  const sha = found.find(([target, name]) => COMMIT.test(target) && name === 'HEAD')?.[0];
  if (sha === undefined) throw invalid(`could not find default branch for repository: ${remote}`);
  return { sha, ref: branch ?? 'HEAD' };
}

function lines(listed: string): [first: string, second: string][] {
  return listed.split('\n').flatMap((line): [string, string][] => {
    const tab = line.indexOf('\t');
    return tab < 0 ? [] : [[line.slice(0, tab), line.slice(tab + 1)]];
  });
}

function localName(ref: string): string {
  if (ref.startsWith(HEADS)) return `refs/remotes/origin/${ref.slice(HEADS.length)}`;
  return ref.startsWith(TAGS) ? ref : 'refs/remotes/origin/HEAD';
}

async function explain(work: Promise<string>, what: string): Promise<string> {
  return work.catch((error: unknown) => {
    if (!(error instanceof EngineError) || error.code !== 'GIT_FAILED') throw error;
    throw new EngineError('internal', `${what}: ${error.message}`, { code: 'GIT_FAILED', cause: error });
  });
}
