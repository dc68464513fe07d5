/** Reads options of networks as clients write them, under either engine's names. */
import { addressFamily } from '../sys/net/ip-address.js';
import { invalid } from '../errors/engine-error.js';
import type { NetworkRequest, NetworkSummary, WantedNetwork } from '../ports/network.js';
import type { Family } from './subnet.js';

const PREFIXES = ['com.docker.network.', 'com.engine.network.'];

/** Returns the value of an option under either engine's name. */
export function option({ options }: Pick<NetworkSummary, 'options'>, name: string): string | undefined {
  return PREFIXES.map((prefix) => options[prefix + name]).find((value) => value !== undefined);
}

/** Returns the defaults that a request does not overrule, under either engine's name. */
export function withoutNamed(
  defaults: Readonly<Record<string, string>>,
  options: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(defaults).filter(
      ([key]) =>
        option(
          { options },
          PREFIXES.reduce((name, prefix) => (name.startsWith(prefix) ? name.slice(prefix.length) : name), key),
        ) === undefined,
    ),
  );
}

/**
 * Returns the request with its address families decided: by the request itself, else by the driver options
 * `enable_ipv4` and `enable_ipv6`. An option that the request overrules is dropped. @throws EngineError invalid.
 */
export function withFamilies(wanted: WantedNetwork, defaults: Readonly<Record<string, string>>): NetworkRequest {
  const overruled = ([4, 6] as const).filter((family) => wanted[`enableIpv${family}`] !== undefined);
  const names = new Set(overruled.flatMap((family) => PREFIXES.map((prefix) => `${prefix}enable_ipv${family}`)));
  const options = Object.fromEntries(Object.entries(wanted.options).filter(([name]) => !names.has(name)));
  const given = { options: { ...withoutNamed(defaults, options), ...options } };
  return {
    ...wanted,
    options,
    enableIpv4: wanted.enableIpv4 ?? familyOption(given, 4) ?? true,
    enableIpv6: wanted.enableIpv6 ?? familyOption(given, 6) ?? false,
  };
}

function familyOption(record: Pick<NetworkSummary, 'options'>, family: Family): boolean | undefined {
  const value = option(record, `enable_ipv${family}`);
  if (value === undefined) return undefined;
  const isOn = /^(1|t|true)$/i.test(value);
  if (!isOn && !/^(0|f|false)$/i.test(value))
    throw invalid(`driver-opt "com.docker.network.enable_ipv${family}" is not a valid bool`);
  return isOn;
}

/** Returns the address in an option; '' if it is not given. @throws EngineError invalid. */
export function addressOption(record: Pick<NetworkSummary, 'options'>, name: string, family: Family): string {
  const address = option(record, name) ?? '';
  if (address !== '' && addressFamily(address) !== family)
    throw invalid(`failed to parse com.docker.network.${name} value: ${address} (nil ip)`);
  return address;
}

/** Returns the boolean in an option. @throws EngineError invalid. */
export function booleanOption(record: NetworkSummary, name: string, fallback: boolean): boolean {
  const value = option(record, name);
  if (value === undefined || value === '') return fallback;
  if (/^(1|t|true)$/i.test(value)) return true;
  if (/^(0|f|false)$/i.test(value)) return false;
  throw invalid(`invalid value for option ${name}: ${value} is not true or false`);
}

/** Returns the number in an option. @throws EngineError invalid. */
export function numberOption(record: NetworkSummary, name: string, fallback: number): number {
  const value = option(record, name);
  if (value === undefined || value === '') return fallback;
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < 68 || number > 65_535)
    throw invalid(`invalid value for option ${name}: ${value} is not a number from 68 to 65535`);
  return number;
}
