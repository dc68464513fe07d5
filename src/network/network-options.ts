/** Options of networks as clients write them, under either engine's names. */
import { isIP } from 'node:net';
import { invalid } from '../errors/engine-error.js';
import type { NetworkSummary } from '../ports/network.js';
import type { Family } from './subnet.js';

const PREFIXES = ['com.docker.network.', 'com.engine.network.'];

/** The value of an option under either engine's name. */
export function option({ options }: Pick<NetworkSummary, 'options'>, name: string): string | undefined {
  return PREFIXES.map((prefix) => options[prefix + name]).find((value) => value !== undefined);
}

/** Defaults that a request does not overrule, under either engine's name. */
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

/** '' where it is not given. @throws EngineError invalid. */
export function addressOption(record: Pick<NetworkSummary, 'options'>, name: string, family: Family): string {
  const address = option(record, name) ?? '';
  if (address !== '' && isIP(address) !== family)
    throw invalid(`failed to parse com.docker.network.${name} value: ${address} (nil ip)`);
  return address;
}

/** @throws EngineError invalid. */
export function booleanOption(record: NetworkSummary, name: string, fallback: boolean): boolean {
  const value = option(record, name);
  if (value === undefined || value === '') return fallback;
  if (/^(1|t|true)$/i.test(value)) return true;
  if (/^(0|f|false)$/i.test(value)) return false;
  throw invalid(`invalid value for option ${name}: ${value} is not true or false`);
}

/** @throws EngineError invalid. */
export function numberOption(record: NetworkSummary, name: string, fallback: number): number {
  const value = option(record, name);
  if (value === undefined || value === '') return fallback;
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < 68 || number > 65_535)
    throw invalid(`invalid value for option ${name}: ${value} is not a number from 68 to 65535`);
  return number;
}
