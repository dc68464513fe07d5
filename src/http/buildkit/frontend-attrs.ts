/** Reads the attributes by which a client of BuildKit describes a build of a Dockerfile. */
import { invalid } from '../../errors/engine-error.js';

const MAX_SHM_BYTES = 2 ** 50;

export interface DockerfileAttrs {
  readonly filename: string;
  /** Name of the client's directory that has the Dockerfile. */
  readonly dockerfileDirectory: string;
  readonly contextDirectory: string;
  /** A URL; undefined: the context is the client's directory. */
  readonly remoteContext: string | undefined;
  readonly target: string;
  readonly platforms: readonly string[];
  readonly noCache: 'all' | readonly string[] | undefined;
  readonly pull: boolean;
  readonly labels: ReadonlyMap<string, string>;
  readonly buildArgs: ReadonlyMap<string, string>;
  readonly namedContexts: ReadonlyMap<string, string>;
  readonly extraHosts: readonly string[];
  readonly ulimits: readonly { readonly name: string; readonly soft: number; readonly hard: number }[];
  readonly shmSize: number;
  readonly cgroupParent: string;
  readonly networkMode: string;
  readonly hostname: string;
  /** Asks for facts about the Dockerfile instead of a build. */
  readonly request: string | undefined;
}

/** @throws EngineError invalid for what cannot be read. */
export function readAttrs(attrs: ReadonlyMap<string, string>): DockerfileAttrs {
  const text = (name: string): string => attrs.get(name) ?? '';
  const below = (prefix: string): Map<string, string> =>
    new Map(
      [...attrs].flatMap(([key, value]) =>
        key.startsWith(prefix) ? [[key.slice(prefix.length), value] as const] : [],
      ),
    );
  return {
    filename: text('filename') || 'Dockerfile',
    dockerfileDirectory: text('dockerfilekey') || 'dockerfile',
    contextDirectory: text('contextkey') || 'context',
    remoteContext: text('context') || undefined,
    target: text('target'),
    platforms: listOf(text('platform')),
    noCache: noCacheOf(attrs.get('no-cache')),
    pull: text('image-resolve-mode') === 'pull',
    labels: below('label:'),
    buildArgs: below('build-arg:'),
    namedContexts: below('context:'),
    extraHosts: readCsv(text('add-hosts')).map(extraHost),
    ulimits: readCsv(text('ulimit')).map(ulimit),
    shmSize: text('shm-size') === '' ? 0 : byteCount(text('shm-size')),
    cgroupParent: text('cgroup-parent'),
    networkMode: text('force-network-mode') || 'default',
    hostname: text('hostname'),
    request: attrs.get('requestid') || undefined,
  };
}

/** Present and empty means all stages. */
function noCacheOf(value: string | undefined): DockerfileAttrs['noCache'] {
  if (value === undefined) return undefined;
  return value === '' ? 'all' : listOf(value);
}

function listOf(value: string): string[] {
  return value
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** Docker's form is `host:address`, the attribute's is `host=address`. */
function extraHost(field: string): string {
  const mark = field.indexOf('=');
  if (mark < 1) throw invalid(`failed to parse additional hosts: invalid key-value pair ${JSON.stringify(field)}`);
  return `${field.slice(0, mark)}:${field.slice(mark + 1)}`;
}

function ulimit(field: string): DockerfileAttrs['ulimits'][number] {
  const mark = field.indexOf('=');
  const limits = field.slice(mark + 1).split(':');
  const soft = Number(limits[0]);
  const hard = Number(limits[1] ?? limits[0]);
  if (mark < 1 || limits.length > 2 || !Number.isInteger(soft) || !Number.isInteger(hard))
    throw invalid(`failed to parse ulimit: ${JSON.stringify(field)}`);
  return { name: field.slice(0, mark), soft, hard };
}

function byteCount(text: string): number {
  const bytes = Number(text);
  if (!Number.isInteger(bytes) || bytes < 0 || bytes > MAX_SHM_BYTES)
    throw invalid(`failed to parse shm-size: ${JSON.stringify(text)}`);
  return bytes;
}

/** Reads the fields of one line of CSV. Its cost is the length of the line. */
export function readCsv(line: string): string[] {
  if (line === '') return [];
  const fields: string[] = [];
  let field = '';
  let isQuoted = false;
  for (let at = 0; at < line.length; at++) {
    const char = line.charAt(at);
    if (isQuoted && char === '"' && line.charAt(at + 1) === '"') {
      field += char;
      at++;
    } else if (char === '"' && (isQuoted || field === '')) isQuoted = !isQuoted;
    else if (char === ',' && !isQuoted) {
      fields.push(field);
      field = '';
    } else field += char;
  }
  if (isQuoted) throw invalid(`parse error: unclosed quote in ${JSON.stringify(line.slice(0, 200))}`);
  return [...fields, field];
}
