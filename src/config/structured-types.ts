/** Types of values with an inner structure. */
import { isIP } from 'node:net';
import { invalid } from '../errors/engine-error.js';
import type { Ulimit } from '../ports/container.js';
import type { AddressPool, BuilderGc, RuntimeEntry } from './config.js';
import { checkMirror } from './item-checks.js';
import { checkCidr, checkIp, isObject, mapObject, parseBytes, splitPair, type ValueType } from './value-types.js';

const ULIMITS = new Set(['core', 'cpu', 'data', 'fsize', 'locks', 'memlock', 'msgqueue', 'nice', 'nofile', 'nproc', 'rss', 'rtprio', 'rttime', 'sigpending', 'stack']);

function checkUlimit(ulimit: Ulimit): Ulimit {
  const { Name, Soft, Hard } = ulimit;
  if (!ULIMITS.has(Name)) throw invalid(`invalid ulimit type: ${Name}`);
  if (!Number.isSafeInteger(Soft) || !Number.isSafeInteger(Hard) || Soft < -1 || Hard < -1) throw invalid(`${Name}: limits must be integers, -1 for none`);
  if (Hard !== -1 && (Soft === -1 || Soft > Hard)) throw invalid(`ulimit soft limit must be less than or equal to hard limit: ${Soft} > ${Hard}`);
  return ulimit;
}

/** `nofile=1024[:2048]`; in the file by name, `{"nofile": {"Name": "nofile", "Soft": 1024, "Hard": 2048}}`. */
export const ulimits: ValueType<Readonly<Record<string, Ulimit>>> = {
  label: 'ulimit',
  repeatable: true,
  schema: {
    type: 'object',
    additionalProperties: {
      type: 'object',
      properties: { Name: { type: 'string' }, Soft: { type: 'integer' }, Hard: { type: 'integer' } },
      required: ['Soft', 'Hard'],
      additionalProperties: false,
    },
  },
  fromFlag: (flag, before = {}) => {
    const [Name, range] = splitPair(flag);
    const [soft = '', hard = soft, ...rest] = range.split(':');
    if (rest.length > 0 || !/^-?\d+$/.test(soft) || !/^-?\d+$/.test(hard)) throw invalid(`invalid ulimit argument: ${flag}`);
    return { ...before, [Name]: checkUlimit({ Name, Soft: Number(soft), Hard: Number(hard) }) };
  },
  fromFile: (value) =>
    mapObject(value, (item, key) => {
      if (!isObject(item)) throw invalid(`${key} must be an object with Name, Soft and Hard`);
      const { Name = key, Soft, Hard, ...rest } = item;
      rejectRest(rest, key);
      if (Name !== key) throw invalid(`${key} must have the Name ${JSON.stringify(key)}`);
      if (typeof Soft !== 'number' || typeof Hard !== 'number') throw invalid(`${key}: Soft and Hard must be integers`);
      return checkUlimit({ Name: key, Soft, Hard });
    }),
};

/** `name=path`; in the file an entry with `path` or with `runtimeType`. */
export const runtimes: ValueType<Readonly<Record<string, RuntimeEntry>>> = {
  label: 'runtime',
  repeatable: true,
  schema: {
    type: 'object',
    additionalProperties: {
      type: 'object',
      properties: { path: { type: 'string' }, runtimeArgs: { type: 'array', items: { type: 'string' } }, runtimeType: { type: 'string' }, options: { type: 'object' } },
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
  // It always names the reference runtime.
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
  // Set-up tools of GPU vendors write an empty `args`, which never meant anything.
  if (args !== undefined && !(Array.isArray(args) && args.length === 0)) throw invalid(`runtime ${name}: args is not a member, use runtimeArgs`);
  const wrong = [['path', path], ['runtimeType', runtimeType]].find(([, text]) => text !== undefined && typeof text !== 'string');
  if (wrong) throw invalid(`runtime ${name}: ${String(wrong[0])} must be a string`);
  if (runtimeArgs !== undefined && !isStrings(runtimeArgs)) throw invalid(`runtime ${name}: runtimeArgs must be an array of strings`);
  if (options !== undefined && !isObject(options)) throw invalid(`runtime ${name}: options must be an object`);
  if (!path && !runtimeType) throw invalid(`runtime ${name}: either a runtimeType or a path must be configured`);
  if (path && runtimeType) throw invalid(`runtime ${name}: cannot configure both path and runtimeType for the same runtime`);
  if (path && options) throw invalid(`runtime ${name}: options cannot be used with a path runtime`);
  if (isRuncShim(runtimeType)) checkRuncOptions(name, options ?? {});
  if (runtimeType && runtimeArgs && runtimeArgs.length > 0) throw invalid(`runtime ${name}: args cannot be used with a runtimeType runtime`);
  return {
    ...(typeof path === 'string' && path ? { path } : {}),
    ...(typeof runtimeType === 'string' && runtimeType ? { runtimeType } : {}),
    ...(runtimeArgs ? { runtimeArgs } : {}),
    ...(options ? { options } : {}),
  };
}

/** The shim of the reference runtime, which has options of its own; the specification writes its name in another way. */
export function isRuncShim(runtimeType: unknown): boolean {
  return runtimeType === 'io.containerd.runc.v2' || runtimeType === 'io.supervisor.runc.v2';
}

const RUNC_OPTIONS: Readonly<Record<string, 'string' | 'boolean'>> = { BinaryName: 'string', NoPivotRoot: 'boolean', SystemdCgroup: 'boolean' };

function checkRuncOptions(name: string, options: object): void {
  for (const [option, value] of Object.entries(options)) {
    const type = RUNC_OPTIONS[option];
    if (type === undefined) throw invalid(`runtime ${name}: unknown option ${option}: must be one of ${Object.keys(RUNC_OPTIONS).join(', ')}`);
    if (typeof value !== type) throw invalid(`runtime ${name}: option ${option} must be a ${type}`);
  }
}

function isStrings(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

function rejectRest(rest: Readonly<Record<string, unknown>>, where: string): void {
  const names = Object.keys(rest);
  if (names.length > 0) throw invalid(`${where}: unknown member ${names.map((name) => JSON.stringify(name)).join(', ')}`);
}

/** `base=10.10.0.0/16,size=24`; in the file an array of objects. */
export const addressPools: ValueType<readonly AddressPool[]> = {
  label: 'pool-options',
  repeatable: true,
  schema: {
    type: 'array',
    items: { type: 'object', properties: { base: { type: 'string' }, size: { type: 'integer' } }, required: ['base', 'size'], additionalProperties: false },
  },
  fromFlag: (flag, before = []) => {
    const fields = new Map(flag.split(',').map((field) => splitPair(field)));
    for (const name of fields.keys()) {
      if (name !== 'base' && name !== 'size') throw invalid(`unexpected key '${name}' in '${flag}'`);
    }
    return [...before, checkPool(fields.get('base') ?? '', Number(fields.get('size') ?? NaN))];
  },
  fromFile: (value) => {
    if (!Array.isArray(value)) throw invalid('must be an array of objects with base and size');
    return value.map((item: unknown) => {
      if (!isObject(item)) throw invalid('must be an array of objects with base and size');
      const { base, size, ...rest } = item;
      rejectRest(rest, 'address pool');
      if (typeof base !== 'string' || typeof size !== 'number') throw invalid('base must be a string and size an integer');
      return checkPool(base, size);
    });
  },
};

function checkPool(base: string, size: number): AddressPool {
  const family = isIP(base.split('/')[0] ?? '') === 6 ? 6 : 4;
  checkCidr(base, family);
  const prefix = Number(base.split('/')[1]);
  if (!Number.isInteger(size) || size < prefix || size > (family === 4 ? 32 : 128)) throw invalid(`invalid size ${size} of address pool ${base}: must be from ${prefix} to ${family === 4 ? 32 : 128}`);
  return { base, size };
}

/** `driver=option=value`; in the file objects by driver name. */
export const networkOptions: ValueType<Readonly<Record<string, Readonly<Record<string, string>>>>> = {
  label: 'map',
  repeatable: true,
  schema: { type: 'object', additionalProperties: { type: 'object', additionalProperties: { type: 'string' } } },
  fromFlag: (flag, before = {}) => {
    const [driver, option] = splitPair(flag);
    const [name, value] = splitPair(option);
    return { ...before, [driver]: { ...before[driver], [name]: value } };
  },
  fromFile: (value) =>
    mapObject(value, (options, driver) => {
      if (!isObject(options)) throw invalid(`${driver} must be an object`);
      return mapObject(options, (option, name) => {
        if (typeof option !== 'string') throw invalid(`${driver}.${name} must be a string`);
        return option;
      });
    }),
};

/** `{"ghcr.io": ["https://mirror"]}`; in the file only. */
export const mirrorsByRegistry: ValueType<Readonly<Record<string, readonly string[]>>> = {
  label: '',
  repeatable: false,
  schema: { type: 'object', additionalProperties: { type: 'array', items: { type: 'string' } } },
  fromFlag: () => ({}),
  fromFile: (value) =>
    mapObject(value, (mirrors, registry) => {
      if (!REGISTRY_HOST.test(registry)) throw invalid(`${JSON.stringify(registry)} is not the host[:port] of a registry`);
      if (/^(index\.)?docker\.io$/.test(registry)) throw invalid(`${registry}: mirrors of the default registry belong into registry-mirrors`);
      if (!isStrings(mirrors)) throw invalid(`${registry} must be an array of URLs`);
      return mirrors.map(checkMirror);
    }),
};

const REGISTRY_HOST = /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[a-fA-F0-9:]+\])(?::\d{1,5})?$/;

/** One IPv4 and one IPv6 address at most. */
export const gatewayIps: ValueType<readonly string[]> = {
  label: 'list',
  repeatable: true,
  schema: { type: 'array', items: { type: 'string' }, maxItems: 2 },
  fromFlag: (flag, before = []) => checkGatewayIps([...before, flag]),
  fromFile: (value) => {
    if (!isStrings(value)) throw invalid('must be an array of IP addresses');
    return checkGatewayIps(value);
  },
};

function checkGatewayIps(addresses: readonly string[]): readonly string[] {
  const families = addresses.map((address) => isIP(checkIp(address)));
  if (families.filter((family) => family === 4).length > 1) throw invalid('only one IPv4 host gateway IP address can be specified');
  if (families.filter((family) => family === 6).length > 1) throw invalid('only one IPv6 host gateway IP address can be specified');
  return addresses;
}

/** `builder.gc`. Members that are not known are kept out, as older daemons did. */
export const builderGc: ValueType<BuilderGc> = {
  label: '',
  repeatable: false,
  schema: {
    type: 'object',
    properties: {
      enabled: { type: 'boolean' },
      defaultKeepStorage: { type: 'string' },
      policy: {
        type: 'array',
        items: { type: 'object', properties: { keepStorage: { type: 'string' }, filter: { type: 'array', items: { type: 'string' } }, all: { type: 'boolean' } } },
      },
    },
  },
  fromFlag: () => {
    throw invalid('can be set in the configuration file only');
  },
  fromFile: (value) => {
    if (!isObject(value)) throw invalid('must be an object');
    const { enabled = false, defaultKeepStorage = '', policy = [] } = value;
    if (typeof enabled !== 'boolean') throw invalid('enabled must be true or false');
    if (!Array.isArray(policy)) throw invalid('policy must be an array');
    return { enabled, defaultKeepStorageBytes: readSize(defaultKeepStorage, 'defaultKeepStorage'), policy: policy.map(readPolicy) };
  },
};

function readPolicy(value: unknown): BuilderGc['policy'][number] {
  if (!isObject(value)) throw invalid('policy must be an array of objects');
  const { keepStorage = '', filter = [], all = false } = value;
  if (typeof all !== 'boolean') throw invalid('policy: all must be true or false');
  if (!isStrings(filter)) throw invalid('policy: filter must be an array of strings');
  return { keepStorageBytes: readSize(keepStorage, 'policy: keepStorage'), filter, all };
}

function readSize(value: unknown, name: string): number {
  if (value === '') return 0;
  if (typeof value !== 'string') throw invalid(`${name} must be a size such as "10GB"`);
  return parseBytes(value);
}
