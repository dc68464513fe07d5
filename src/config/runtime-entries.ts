/**
 * The type of `runtimes`: runtimes besides the reference one, each as a program in its place or as a shim of its own.
 */
import { isAbsolute } from 'node:path';
import { invalid } from '../errors/engine-error.js';
import { isObject, isStrings, mapObject, rejectRest, splitPair, type ValueType } from './value-types.js';

export interface RuntimeEntry {
  readonly path?: string;
  readonly runtimeArgs?: readonly string[];
  readonly runtimeType?: string;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** `name=path`; in the file an entry with `path` or with `runtimeType`. */
export const runtimes: ValueType<Readonly<Record<string, RuntimeEntry>>> = {
  label: 'runtime',
  repeatable: true,
  schema: {
    type: 'object',
    additionalProperties: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        runtimeArgs: { type: 'array', items: { type: 'string' } },
        runtimeType: { type: 'string' },
        options: { type: 'object' },
      },
      oneOf: [{ required: ['path'] }, { required: ['runtimeType'] }],
      additionalProperties: false,
    },
  },
  fromFlag: (flag, before = {}) => {
    const [name, path] = splitPair(flag);
    if (path === '') throw invalid(`invalid runtime argument: ${flag}`);
    if (Object.hasOwn(before, name)) throw invalid(`runtime '${name}' was already defined`);
    return { ...before, ...checkRuntimes({ [name]: { path } }) };
  },
  fromFile: (value) => checkRuntimes(mapObject(value, readRuntime)),
};

function checkRuntimes(entries: Record<string, RuntimeEntry>): Record<string, RuntimeEntry> {
  // This name always means the reference runtime.
  if (Object.hasOwn(entries, 'runc')) throw invalid("runtime name 'runc' is reserved");
  for (const name of Object.keys(entries)) {
    if (!/^[a-zA-Z0-9][a-zA-Z0-9._-]*$/.test(name)) throw invalid(`invalid runtime name: ${JSON.stringify(name)}`);
  }
  return entries;
}

function readRuntime(value: unknown, name: string): RuntimeEntry {
  if (!isObject(value)) throw invalid(`runtime ${name}: must be an object`);
  const { path, runtimeArgs, runtimeType, options, args, ...rest } = value;
  rejectRest(rest, `runtime ${name}`);
  // Set-up tools of GPU vendors write an empty `args`, which has no effect and is accepted.
  if (args !== undefined && !(Array.isArray(args) && args.length === 0))
    throw invalid(`runtime ${name}: args is not a member, use runtimeArgs`);
  const wrong = [
    ['path', path],
    ['runtimeType', runtimeType],
  ].find(([, text]) => text !== undefined && typeof text !== 'string');
  if (wrong) throw invalid(`runtime ${name}: ${String(wrong[0])} must be a string`);
  if (runtimeArgs !== undefined && !isStrings(runtimeArgs))
    throw invalid(`runtime ${name}: runtimeArgs must be an array of strings`);
  if (options !== undefined && !isObject(options)) throw invalid(`runtime ${name}: options must be an object`);
  if (!path && !runtimeType) throw invalid(`runtime ${name}: either a runtimeType or a path must be configured`);
  if (path && runtimeType)
    throw invalid(`runtime ${name}: cannot configure both path and runtimeType for the same runtime`);
  if (path && options) throw invalid(`runtime ${name}: options cannot be used with a path runtime`);
  if (typeof runtimeType === 'string' && runtimeType !== '' && !isShim(runtimeType)) {
    const forms = 'the name of a shim such as io.containerd.runc.v2, or the absolute path of one';
    throw invalid(`runtime ${name}: runtimeType must be ${forms}, not ${JSON.stringify(runtimeType)}`);
  }
  if (options)
    checkOptions(name, options, isRuncShim(runtimeType) ? RUNC_OPTIONS : SHIM_OPTIONS, isRuncShim(runtimeType));
  if (runtimeType && runtimeArgs && runtimeArgs.length > 0)
    throw invalid(`runtime ${name}: args cannot be used with a runtimeType runtime`);
  return {
    ...(typeof path === 'string' && path ? { path } : {}),
    ...(typeof runtimeType === 'string' && runtimeType ? { runtimeType } : {}),
    ...(runtimeArgs ? { runtimeArgs } : {}),
    ...(options ? { options } : {}),
  };
}

/**
 * Returns true for the shim of the reference runtime, which has options of its own. The second spelling is the
 * specification's.
 */
export function isRuncShim(runtimeType: unknown): boolean {
  return runtimeType === 'io.containerd.runc.v2' || runtimeType === 'io.supervisor.runc.v2';
}

/** The form of a shim's name; it ends in its version. */
const SHIM_NAME = /^[\w-]+(?:\.[\w-]+)+$/;

/**
 * Returns true for a shim's name, whose last two parts make the name of a program on PATH, or for the path of a
 * program.
 */
export function isShim(runtimeType: string): boolean {
  return isAbsolute(runtimeType) || SHIM_NAME.test(runtimeType);
}

/** Returns the program of a shim as containerd finds it: by its path, or by the last two parts of its name on PATH. */
export function shimProgram(runtimeType: string): string {
  if (isAbsolute(runtimeType)) return runtimeType;
  if (isRuncShim(runtimeType)) return 'containerd-shim-runc-v2';
  return `containerd-shim-${runtimeType.split('.').slice(-2).join('-')}`;
}

type OptionTypes = ReadonlyMap<string, 'string' | 'boolean' | 'id'>;

const RUNC_OPTIONS: OptionTypes = new Map([
  ['BinaryName', 'string'],
  ['CriuImagePath', 'string'],
  ['CriuWorkPath', 'string'],
  ['IoGid', 'id'],
  ['IoUid', 'id'],
  ['NoNewKeyring', 'boolean'],
  ['NoPivotRoot', 'boolean'],
  ['Root', 'string'],
  ['ShimCgroup', 'string'],
  ['SystemdCgroup', 'boolean'],
]);

/** All other shims have these options; further members are passed to the shim as they are. */
const SHIM_OPTIONS: OptionTypes = new Map([
  ['ConfigPath', 'string'],
  ['TypeUrl', 'string'],
]);

/** Returns true when there is a null anywhere: shims read their options as TOML, which has no word for it. */
function hasNull(value: unknown): boolean {
  return value === null || (typeof value === 'object' && Object.values(value).some(hasNull));
}

function checkOptions(name: string, options: object, types: OptionTypes, isWhole: boolean): void {
  for (const [option, value] of Object.entries(options)) {
    const type = types.get(option);
    if (type === undefined && isWhole) {
      throw invalid(`runtime ${name}: unknown option ${option}: must be one of ${[...types.keys()].join(', ')}`);
    }
    if (type === 'id' && !(Number.isInteger(value) && value >= 0 && value < 2 ** 32)) {
      throw invalid(`runtime ${name}: option ${option} must be a user or group id`);
    }
    if (type !== undefined && type !== 'id' && typeof value !== type) {
      throw invalid(`runtime ${name}: option ${option} must be a ${type}`);
    }
    if (hasNull(value)) throw invalid(`runtime ${name}: option ${option} cannot be null`);
  }
}
