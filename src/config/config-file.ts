/** Reads the configuration file: bytes to located values of options, with everything that is wrong in it. */
import { readFileSync } from 'node:fs';
import { invalid, isEngineError, messageOf } from '../errors/engine-error.js';
import { JsonSyntaxError, parseJson, type LocatedJson, type Position } from './json-text.js';
import { IDLE_KEYS } from './notices.js';
import { OPTION_LIST, type NamedOption, type OptionName } from './options.js';
import { suggestKey } from './suggest.js';
import { isObject } from './value-types.js';

export interface FileValue {
  readonly value: unknown;
  readonly position: Position | undefined;
}

/** A fault of one key. */
export interface FileFault {
  readonly kind: 'unknown' | 'invalid';
  readonly key: string;
  readonly message: string;
  readonly position: Position | undefined;
}

export interface ConfigFile {
  readonly values: ReadonlyMap<OptionName, FileValue>;
  readonly faults: readonly FileFault[];
  /** These members are known to have no effect. */
  readonly idleKeys: readonly string[];
}

const NOTHING: ConfigFile = { values: new Map(), faults: [], idleKeys: [] };

const BY_KEY = new Map(
  OPTION_LIST.flatMap((option) => (option.key === undefined ? [] : [[option.key, option] as const])),
);
/** Names of objects that only group options. */
const GROUPS = new Set(OPTION_LIST.flatMap(({ key }) => (key?.includes('.') ? [key.slice(0, key.indexOf('.'))] : [])));

/**
 * Reads a file, synchronously: nothing runs yet that could be held up, and a reload reads a few kilobytes. Faults of
 * single keys are returned.
 * @param named the operator named the file: then it must exist.
 * @throws EngineError invalid when it cannot be read or is no JSON object.
 */
export function readConfigFile(path: string, named: boolean): ConfigFile {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    if (!named && error instanceof Error && 'code' in error && error.code === 'ENOENT') return NOTHING;
    const reason =
      error instanceof Error && 'code' in error && error.code === 'ENOENT'
        ? `open ${path}: no such file or directory`
        : messageOf(error);
    throw invalid(`unable to configure the daemon with file ${path}: ${reason}`, {
      code: 'CONFIG_FILE_UNREADABLE',
      cause: error,
    });
  }
  return parseConfigFile(bytes, path);
}

/** Does the same as `readConfigFile`, from bytes. */
export function parseConfigFile(bytes: Buffer, path: string): ConfigFile {
  const text = decode(bytes, path);
  if (text.trim() === '') return NOTHING;
  let document: LocatedJson;
  try {
    document = parseJson(text);
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    const { line, column } = error.position;
    throw invalid(
      `unable to configure the daemon with file ${path}: ` +
        `invalid JSON at line ${line}, column ${column}: ${error.message}`,
      { code: 'CONFIG_FILE_SYNTAX', cause: error },
    );
  }
  if (!isObject(document.value))
    throw invalid(`unable to configure the daemon with file ${path}: must be a JSON object`, {
      code: 'CONFIG_FILE_SYNTAX',
    });
  return readMembers(document.value, document.positions);
}

/** Decodes UTF-8 or, as editors on Windows write it, UTF-16 with a byte order mark. */
function decode(bytes: Buffer, path: string): string {
  const encoding =
    bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : 'utf-8';
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch (error) {
    throw invalid(`unable to configure the daemon with file ${path}: not ${encoding.toUpperCase()} text`, {
      code: 'CONFIG_FILE_SYNTAX',
      cause: error,
    });
  }
}

function readMembers(root: Readonly<Record<string, unknown>>, positions: ReadonlyMap<string, Position>): ConfigFile {
  const values = new Map<OptionName, FileValue>();
  const faults: FileFault[] = [];
  const idleKeys: string[] = [];
  const read = (key: string, option: NamedOption, value: unknown): void => {
    const position = positions.get(key);
    // As in the known engines, null is as good as absent.
    if (value === null) return;
    try {
      values.set(option.name, { value: option.type.fromFile(value), position });
    } catch (error) {
      if (!isEngineError(error)) throw error;
      faults.push({ kind: 'invalid', key, message: error.message, position });
    }
  };
  const unknown = (key: string): void => {
    if (IDLE_KEYS.has(key)) return void idleKeys.push(key);
    const suggestion = suggestKey(key, [...BY_KEY.keys()]);
    return void faults.push({
      kind: 'unknown',
      key,
      message: suggestion === undefined ? '' : `did you mean ${JSON.stringify(suggestion)}?`,
      position: positions.get(key),
    });
  };
  for (const [key, value] of Object.entries(root)) {
    const option = BY_KEY.get(key);
    if (option) read(key, option, value);
    else if (GROUPS.has(key) && isObject(value)) readGroup(key, value, read, unknown);
    else if (GROUPS.has(key))
      faults.push({ kind: 'invalid', key, message: 'must be an object', position: positions.get(key) });
    else if (key === 'host-gateway-ip') readOldGateway(root, value, read, faults, positions);
    else unknown(key);
  }
  return { values, faults, idleKeys };
}

function readGroup(
  group: string,
  members: Readonly<Record<string, unknown>>,
  read: (key: string, option: NamedOption, value: unknown) => void,
  unknown: (key: string) => void,
): void {
  for (const [member, value] of Object.entries(members)) {
    const key = `${group}.${member}`;
    const option = BY_KEY.get(key);
    if (option) read(key, option, value);
    else unknown(key);
  }
}

/** Reads `host-gateway-ip` with one address, from before there could be two. */
function readOldGateway(
  root: Readonly<Record<string, unknown>>,
  value: unknown,
  read: (key: string, option: NamedOption, value: unknown) => void,
  faults: FileFault[],
  positions: ReadonlyMap<string, Position>,
): void {
  const key = 'host-gateway-ip';
  const position = positions.get(key);
  const option = BY_KEY.get('host-gateway-ips');
  if (Object.hasOwn(root, 'host-gateway-ips'))
    faults.push({ kind: 'invalid', key, message: 'cannot be given together with host-gateway-ips', position });
  else if (typeof value !== 'string')
    faults.push({ kind: 'invalid', key, message: 'must be a string; host-gateway-ips takes an array', position });
  else if (option) read(key, option, [value]);
}
