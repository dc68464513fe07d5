/** Types of values with an inner structure. */
import { isIP } from 'node:net';
import { invalid } from '../errors/engine-error.js';
import type { Ulimit } from '../ports/container.js';
import { checkUlimit } from '../runtime/ulimits.js';
import { ownMember } from '../text/own-member.js';
import { checkMirror } from './item-checks.js';
import {
  checkCidr,
  checkIp,
  isObject,
  isStrings,
  mapObject,
  rejectRest,
  splitPair,
  type ValueType,
} from './value-types.js';

/** Checks a default ulimit, for which there are stricter rules than for those of containers. */
function checkDefault(ulimit: Ulimit): Ulimit {
  const { Name, Soft, Hard } = ulimit;
  if (!Number.isSafeInteger(Soft) || !Number.isSafeInteger(Hard))
    throw invalid(`${Name}: limits must be integers, -1 for none`);
  checkUlimit(ulimit);
  return ulimit;
}

/**
 * `nofile=1024[:2048]`; in the file an object by name, `{"nofile": {"Name": "nofile", "Soft": 1024, "Hard": 2048}}`.
 */
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
    if (rest.length > 0 || !/^-?\d+$/.test(soft) || !/^-?\d+$/.test(hard))
      throw invalid(`invalid ulimit argument: ${flag}`);
    return { ...before, [Name]: checkDefault({ Name, Soft: Number(soft), Hard: Number(hard) }) };
  },
  fromFile: (value) =>
    mapObject(value, (item, key) => {
      if (!isObject(item)) throw invalid(`${key} must be an object with Name, Soft and Hard`);
      const { Name = key, Soft, Hard, ...rest } = item;
      rejectRest(rest, key);
      if (Name !== key) throw invalid(`${key} must have the Name ${JSON.stringify(key)}`);
      if (typeof Soft !== 'number' || typeof Hard !== 'number') throw invalid(`${key}: Soft and Hard must be integers`);
      return checkDefault({ Name: key, Soft, Hard });
    }),
};

export interface AddressPool {
  readonly base: string;
  /** Prefix length of the networks cut from it. */
  readonly size: number;
}

/** `base=10.10.0.0/16,size=24`; in the file an array of objects. */
export const addressPools: ValueType<readonly AddressPool[]> = {
  label: 'pool-options',
  repeatable: true,
  schema: {
    type: 'array',
    items: {
      type: 'object',
      properties: { base: { type: 'string' }, size: { type: 'integer' } },
      required: ['base', 'size'],
      additionalProperties: false,
    },
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
      if (typeof base !== 'string' || typeof size !== 'number')
        throw invalid('base must be a string and size an integer');
      return checkPool(base, size);
    });
  },
};

function checkPool(base: string, size: number): AddressPool {
  const family = isIP(base.split('/')[0] ?? '') === 6 ? 6 : 4;
  checkCidr(base, family);
  const prefix = Number(base.split('/')[1]);
  if (!Number.isInteger(size) || size < prefix || size > (family === 4 ? 32 : 128))
    throw invalid(`invalid size ${size} of address pool ${base}: must be from ${prefix} to ${family === 4 ? 32 : 128}`);
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
    return { ...before, [driver]: { ...ownMember(before, driver), [name]: value } };
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
      if (!REGISTRY_HOST.test(registry))
        throw invalid(`${JSON.stringify(registry)} is not the host[:port] of a registry`);
      if (/^(index\.)?docker\.io$/.test(registry))
        throw invalid(`${registry}: mirrors of the default registry belong into registry-mirrors`);
      if (!isStrings(mirrors)) throw invalid(`${registry} must be an array of URLs`);
      return mirrors.map(checkMirror);
    }),
};

const REGISTRY_HOST = /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[a-fA-F0-9:]+\])(?::\d{1,5})?$/;

/** A list with at most one IPv4 and one IPv6 address. */
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
  if (families.filter((family) => family === 4).length > 1)
    throw invalid('only one IPv4 host gateway IP address can be specified');
  if (families.filter((family) => family === 6).length > 1)
    throw invalid('only one IPv6 host gateway IP address can be specified');
  return addresses;
}
