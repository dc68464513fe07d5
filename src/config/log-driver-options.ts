/** Checks the names of a log driver and of its options, as far as that needs no host: for any platform, too. */
import { COMMON_OPTIONS, LOCAL_DRIVERS } from '../logs/options/log-options.js';
import { REMOTE_DRIVERS } from '../logs/remote/remote-drivers.js';
import { ownMember } from '../text/own-member.js';

/** Options of each driver; `undefined`: they are not checked here. */
const DRIVERS: ReadonlyMap<string, ReadonlySet<string> | undefined> = new Map([
  ...Object.entries(LOCAL_DRIVERS),
  ...Object.entries(REMOTE_DRIVERS).map(([name, { options }]) => [name, options && new Set(options)] as const),
]);

const WINDOWS_ONLY = new Set(['etwlogs']);

/**
 * Returns what is wrong with a driver and its options. A name with `/` or `:` is a plugin's, which is not known before
 * it runs.
 */
export function logDriverProblems(
  driver: string,
  options: Readonly<Record<string, string>>,
  platform: 'linux' | 'windows',
): string[] {
  if (/[/:]/.test(driver) || (platform === 'windows' && WINDOWS_ONLY.has(driver))) return [];
  if (WINDOWS_ONLY.has(driver)) return [`log driver ${driver} is only available on Windows`];
  if (!DRIVERS.has(driver)) return [`logger: no log driver named '${driver}' is registered`];
  const known = DRIVERS.get(driver);
  const problems = Object.keys(options)
    .filter((name) => known !== undefined && !known.has(name) && !COMMON_OPTIONS.has(name))
    .map((name) => `unknown log opt '${name}' for ${driver} log driver`);
  return [...problems, ...valueProblems(options)];
}

function valueProblems(options: Readonly<Record<string, string>>): string[] {
  const problems: string[] = [];
  const check = (name: string, pattern: RegExp, what: string): void => {
    const value = ownMember(options, name);
    if (value !== undefined && !pattern.test(value))
      problems.push(`invalid value for ${name}: ${JSON.stringify(value)} is not ${what}`);
  };
  const size = /^-1$|^\d+(\.\d+)? ?[kmgtp]?(i?b)?$/i;
  for (const name of ['max-size', 'max-buffer-size', 'cache-max-size']) check(name, size, 'a size');
  for (const name of ['max-file', 'cache-max-file']) check(name, /^[1-9]\d*$/, 'a number from 1');
  for (const name of ['compress', 'cache-compress', 'cache-disabled'])
    check(name, /^(1|t|true|0|f|false)$/i, 'true or false');
  check('mode', /^(blocking|non-blocking)$/, '"blocking" or "non-blocking"');
  if (options['max-buffer-size'] !== undefined && options['mode'] !== 'non-blocking')
    problems.push("max-buffer-size option is only supported with 'mode=non-blocking'");
  return problems;
}
