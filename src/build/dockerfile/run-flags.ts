/** `--mount` and `--device` of RUN: fields in CSV. */
import { type MountType, PLAIN_MOUNT, type RunDevice, type RunMount } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { csvFields } from './csv.js';
import { parseBool, parseSize, parseUint } from './go-values.js';
import { didYouMean } from './suggest.js';

const TYPES: ReadonlySet<string> = new Set(['bind', 'cache', 'tmpfs', 'secret', 'ssh']);
const SHARING: ReadonlySet<string> = new Set(['shared', 'private', 'locked']);
const KEYS = [
  'type from source target readonly id sharing required size mode uid gid',
  'src dst destination ro rw readwrite env',
].flatMap((keys) => keys.split(' '));
/** The only types whose files have an owner and a mode of their own. */
const WITH_OWNER: ReadonlySet<string> = new Set(['cache', 'secret', 'ssh']);

/** Replaces the variables in a value. */
export type Expander = (text: string) => string;

type Draft = { -readonly [K in keyof RunMount]: RunMount[K] } & { readOnlyIsSet: boolean };

/**
 * Says where the mount is from: it is the one field that has no variables, since stages are found by it before any
 * variable is known. @throws DockerfileError without lines.
 */
export function mountFrom(text: string): string {
  let from = '';
  for (const field of csvFields(text, 'failed to parse csv mounts')) {
    const [key, value] = pairOf(field);
    if (key !== 'from' || value === undefined) continue;
    const at = value.indexOf('$');
    if (at >= 0 && at !== value.length - 1)
      throw new DockerfileError("'from' doesn't support variable expansion, define alias stage instead");
    from = value;
  }
  return from;
}

/** @throws DockerfileError without lines. */
export function parseMount(text: string, expand: Expander): RunMount {
  const mount: Draft = { ...PLAIN_MOUNT, readOnlyIsSet: false };
  for (const field of csvFields(text, 'failed to parse csv mounts')) {
    const [key, value] = pairOf(field);
    if (value === undefined) setBare(mount, key, field);
    else setPair(mount, key, expand(value), field);
  }
  checkMount(mount);
  const { readOnlyIsSet, ...finished } = mount;
  if (!readOnlyIsSet) finished.readOnly = mount.type !== 'cache' && mount.type !== 'tmpfs';
  return finished;
}

/** A key without a value. */
function setBare(mount: Draft, key: string, field: string): void {
  if (key === 'readonly' || key === 'ro' || key === 'readwrite' || key === 'rw') {
    mount.readOnly = key === 'readonly' || key === 'ro';
    mount.readOnlyIsSet = true;
  } else if (key === 'required') {
    requireType(mount, key, ['secret', 'ssh']);
    mount.required = true;
  } else throw new DockerfileError(`invalid field '${field}' must be a key=value pair`);
}

function setPair(mount: Draft, key: string, value: string, field: string): void {
  if (setText(mount, key, value)) return;
  if (key === 'readonly' || key === 'ro' || key === 'readwrite' || key === 'rw') {
    const bool = boolOf(key, value);
    mount.readOnly = key === 'readonly' || key === 'ro' ? bool : !bool;
    mount.readOnlyIsSet = true;
  } else if (key === 'required') {
    requireType(mount, key, ['secret', 'ssh']);
    mount.required = boolOf(key, value);
  } else if (key === 'size') {
    requireType(mount, key, ['tmpfs']);
    const size = parseSize(value);
    if (size === undefined) throw new DockerfileError(`invalid value for ${key}: ${value}`);
    mount.size = size;
  } else if (key === 'mode' || key === 'uid' || key === 'gid') {
    const number = parseUint(value, key === 'mode' ? 8 : 10);
    if (number === undefined) throw new DockerfileError(`invalid value ${value} for ${key}`);
    mount[key] = number;
  } else throw unexpectedKey(key, field, KEYS);
}

/** Returns false for a key whose value is no text. */
function setText(mount: Draft, key: string, value: string): boolean {
  const lower = value.toLowerCase();
  if (key === 'type') {
    if (!TYPES.has(lower))
      throw new DockerfileError(`unsupported mount type ${quote(value)}${didYouMean(value, TYPES, true)}`);
    mount.type = lower as MountType;
  } else if (key === 'sharing') {
    if (!SHARING.has(lower))
      throw new DockerfileError(`unsupported sharing value ${quote(value)}${didYouMean(value, SHARING, true)}`);
    mount.sharing = lower as RunMount['sharing'];
  } else if (key === 'from' || key === 'id' || key === 'env') mount[key] = value;
  else if (key === 'source' || key === 'src') mount.source = value;
  else if (key === 'target' || key === 'dst' || key === 'destination') mount.target = value;
  else return false;
  return true;
}

function checkMount(mount: Draft): void {
  if (!WITH_OWNER.has(mount.type)) {
    for (const key of ['mode', 'uid', 'gid'] as const) {
      if (mount[key] !== undefined) throw new DockerfileError(`${key} not allowed for "${mount.type}" type mounts`);
    }
  }
  if (mount.type === 'secret') checkSecret(mount);
  if (mount.sharing !== undefined && mount.type !== 'cache')
    throw new DockerfileError(`invalid cache sharing set for ${mount.type} mount`);
}

function checkSecret({ from, sharing, source, target, id }: Draft): void {
  if (from !== '') throw new DockerfileError('secret mount should not have a from');
  if (sharing !== undefined) throw new DockerfileError('secret mount should not define sharing');
  if (source === '' && target === '' && id === '')
    throw new DockerfileError('invalid secret mount. one of source, target required');
  if (source !== '' && id !== '') throw new DockerfileError("both source and id can't be set");
}

/** @throws DockerfileError without lines. */
export function parseDevice(text: string): RunDevice {
  let name = '';
  let required = false;
  for (const field of csvFields(text, 'failed to parse csv devices')) {
    const [key, value] = pairOf(field);
    if (key === 'required') required = value === undefined || boolOf(key, value);
    else if (key === 'name' && value !== undefined) {
      if (name !== '') throw new DockerfileError(`device name already set to ${name}`);
      name = value;
    } else if (name === '') name = field;
    else if (value === undefined) throw new DockerfileError(`invalid field '${field}' must be a key=value pair`);
    else throw unexpectedKey(key, field, ['name', 'required']);
  }
  return { name, required };
}

function pairOf(field: string): readonly [key: string, value: string | undefined] {
  const sign = field.indexOf('=');
  return sign < 0 ? [field.toLowerCase(), undefined] : [field.slice(0, sign).toLowerCase(), field.slice(sign + 1)];
}

function boolOf(key: string, value: string): boolean {
  const bool = parseBool(value);
  if (bool === undefined) throw new DockerfileError(`invalid value for ${key}: ${value}`);
  return bool;
}

function requireType(mount: Draft, key: string, types: readonly MountType[]): void {
  if (!types.includes(mount.type)) throw new DockerfileError(`unexpected key '${key}' for mount type '${mount.type}'`);
}

function unexpectedKey(key: string, field: string, keys: readonly string[]): Error {
  return new DockerfileError(`unexpected key '${key}' in '${field}'${didYouMean(key, keys, true)}`);
}

function quote(text: string): string {
  return JSON.stringify(text);
}
