/** HEALTHCHECK, which has a word before its command line. */
import type { HealthcheckInstruction, HealthcheckValue } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { type FlagKind, Flags } from './flags.js';
import { parseDuration } from './go-values.js';
import { atLeastOne, commandOf, type Source } from './source.js';
import { cutBlanks } from './words.js';

const FLAGS: ReadonlyMap<string, FlagKind> = new Map([
  ['interval', 'text'],
  ['timeout', 'text'],
  ['start-period', 'text'],
  ['start-interval', 'text'],
  ['retries', 'text'],
]);
const MILLISECOND = 1e6;

export function parseHealthcheck({ node, common }: Source): HealthcheckInstruction {
  if (node.rest === '') throw atLeastOne('HEALTHCHECK');
  const [word, rest = ''] = cutBlanks(node.rest);
  const type = word.toUpperCase();
  if (type === 'NONE') {
    if (rest !== '') throw new DockerfileError('HEALTHCHECK NONE takes no arguments');
    return { ...common, kind: 'HEALTHCHECK', healthcheck: { ...NO_TIMES, test: [type] } };
  }
  const flags = new Flags(node.flags, FLAGS);
  if (type !== 'CMD') throw new DockerfileError(`Unknown type ${JSON.stringify(type)} in HEALTHCHECK (try CMD)`);
  const { args, isShellForm } = commandOf(rest, []);
  if (args.length === 0) throw new DockerfileError('Missing command after HEALTHCHECK CMD');
  const healthcheck: HealthcheckValue = {
    test: [isShellForm ? 'CMD-SHELL' : 'CMD', ...args],
    interval: interval(flags, 'interval'),
    timeout: interval(flags, 'timeout'),
    startPeriod: interval(flags, 'start-period'),
    startInterval: interval(flags, 'start-interval'),
    retries: retriesOf(flags.text('retries')),
  };
  return { ...common, kind: 'HEALTHCHECK', healthcheck };
}

const NO_TIMES = { interval: 0, timeout: 0, startPeriod: 0, startInterval: 0, retries: 0 } as const;

function interval(flags: Flags, name: string): number {
  const text = flags.text(name);
  const time = text === '' ? 0 : parseDuration(text);
  if (time !== 0 && time < MILLISECOND)
    throw new DockerfileError(`Interval ${JSON.stringify(name)} cannot be less than 1ms`);
  return time;
}

function retriesOf(text: string): number {
  if (text === '') return 0;
  const quoted = JSON.stringify(text);
  if (!/^[+-]?[0-9]{1,40}$/.test(text))
    throw new DockerfileError(`strconv.ParseInt: parsing ${quoted}: invalid syntax`);
  const retries = Number(text);
  if (Math.abs(retries) > 0x7fff_ffff)
    throw new DockerfileError(`strconv.ParseInt: parsing ${quoted}: value out of range`);
  if (retries < 0) throw new DockerfileError(`--retries cannot be negative (${retries})`);
  return retries;
}
