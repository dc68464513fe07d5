/** Names of git repositories for `docker build` and ADD: `https://host/repo.git#ref:subdir`, `git@host:repo`. */
import { invalid } from '../../errors/engine-error.js';

export interface GitReference {
  /** This is given to git: without a user of HTTP. */
  readonly remote: string;
  readonly scheme: 'http' | 'https' | 'git' | 'ssh';
  readonly host: string;
  /** User and password of HTTP that were in the URL, for the header that logs in; empty where there are none. */
  readonly login: string;
  /** Empty means the default branch. */
  readonly ref: string;
  readonly subdir: string;
  /** A commit or its beginning; empty means any. */
  readonly checksum: string;
  readonly keepGitDir: boolean | undefined;
  readonly submodules: boolean;
}

interface Address extends Pick<GitReference, 'remote' | 'scheme' | 'host' | 'login'> {
  readonly query: URLSearchParams;
  readonly fragment: string;
}

interface Parts {
  ref: string;
  subdir: string;
  checksum: string;
  keepGitDir: boolean | undefined;
  submodules: boolean;
}

const SCP_FORM = /^([\w.-]+)@([\w.-]+):(.*)$/s;
const TRUE = new Set(['', '1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** Returns undefined for what names no repository. @throws EngineError invalid, in BuildKit's words. */
export function parseGitReference(text: string): GitReference | undefined {
  const address = addressOf(text);
  if (address === undefined) return undefined;
  const { query, fragment, ...rest } = address;
  const colon = fragment.indexOf(':');
  const parts: Parts = {
    ref: colon < 0 ? fragment : fragment.slice(0, colon),
    subdir: colon < 0 ? '' : fragment.slice(colon + 1),
    checksum: '',
    keepGitDir: undefined,
    submodules: true,
  };
  applyQuery(parts, query);
  if (parts.ref.startsWith('-')) throw invalid(`invalid git ref ${JSON.stringify(parts.ref)}`);
  return { ...rest, ...parts };
}

function addressOf(text: string): Address | undefined {
  if (text.startsWith('./') || text.startsWith('../')) return undefined;
  if (/^(?:https?|git|ssh):\/\//i.test(text)) return urlAddress(text);
  if (text.startsWith('github.com/')) return urlAddress(`https://${text}`, true);
  return scpAddress(text);
}

/** An address of HTTP is that of a repository when its path ends in `.git`. */
function urlAddress(text: string, isKnown = false): Address | undefined {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return undefined;
  }
  const scheme = url.protocol.slice(0, -1) as Address['scheme'];
  const isHttp = scheme === 'http' || scheme === 'https';
  if (isHttp && !isKnown && !url.pathname.endsWith('.git')) return undefined;
  if (!/^[\w[]/.test(url.hostname)) throw invalid(`invalid host of a git repository: ${url.hostname}`);
  const query = new URLSearchParams(url.search);
  const fragment = decoded(url.hash.slice(1));
  const login = isHttp && (url.username !== '' || url.password !== '');
  const user = login ? `${decoded(url.username)}:${decoded(url.password)}` : '';
  url.hash = '';
  url.search = '';
  if (login) url.username = url.password = '';
  return { remote: url.href, scheme, host: url.host, login: user, query, fragment };
}

function scpAddress(text: string): Address | undefined {
  const [, user = '', host = '', rest = ''] = SCP_FORM.exec(text) ?? [];
  if (host === '' || user.startsWith('-') || host.startsWith('-')) return undefined;
  const hash = rest.indexOf('#');
  const before = hash < 0 ? rest : rest.slice(0, hash);
  const mark = before.indexOf('?');
  const path = mark < 0 ? before : before.slice(0, mark);
  return {
    remote: `${user}@${host}:${path}`,
    scheme: 'ssh',
    host,
    login: '',
    query: new URLSearchParams(mark < 0 ? '' : before.slice(mark + 1)),
    fragment: hash < 0 ? '' : rest.slice(hash + 1),
  };
}

function applyQuery(parts: Parts, query: URLSearchParams): void {
  const named = { branch: '', tag: '' };
  for (const key of new Set(query.keys())) {
    const [value = '', ...others] = query.getAll(key);
    const isFlag = key === 'keep-git-dir' || key === 'submodules';
    if (others.length > 0) throw invalid(`query ${JSON.stringify(key)} has multiple values`);
    if (key === 'branch' || key === 'tag') named[key] = value;
    else if (key === 'ref' || key === 'subdir') parts[key] = agreed(key, parts[key], value);
    else if (key === 'checksum' || key === 'commit') parts.checksum = agreed('checksum', parts.checksum, value);
    else if (key === 'keep-git-dir') parts.keepGitDir = flagOf(key, value);
    else if (key === 'submodules') parts.submodules = flagOf(key, value);
    else throw invalid(`unexpected query ${JSON.stringify(key)}`);
    if (value === '' && !isFlag) throw invalid(`query ${JSON.stringify(key)} has no value`);
  }
  if (named.branch !== '' && named.tag !== '') throw invalid('branch conflicts with tag');
  const ref = named.branch === '' ? named.tag : named.branch;
  if (ref === '') return;
  if (parts.ref !== '' && parts.ref !== ref)
    throw invalid(`ref conflicts: ${JSON.stringify(parts.ref)} vs ${JSON.stringify(ref)}`);
  parts.ref = `${named.branch === '' ? 'refs/tags/' : 'refs/heads/'}${ref}`;
}

function agreed(key: string, before: string, value: string): string {
  if (before !== '' && before !== value)
    throw invalid(`${key} conflicts: ${JSON.stringify(before)} vs ${JSON.stringify(value)}`);
  return value;
}

function flagOf(key: string, value: string): boolean {
  if (TRUE.has(value)) return true;
  if (FALSE.has(value)) return false;
  throw invalid(`invalid ${key} value: ${JSON.stringify(value)}`);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns a text whose addresses have no user and no password, which may have `@` in it, for messages and records. */
export function withoutLogin(text: string): string {
  return text.replace(/(https?:\/\/)[^/?#\s"]*@/gi, '$1xxxxx@');
}
