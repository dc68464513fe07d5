/** Checks the options of log drivers, with the texts that the Engine API's clients know. */
import { invalid } from '../../errors/engine-error.js';
import type { RotationPolicy } from '../writing/log-file.js';
import { ATTRIBUTE_OPTIONS } from '../remote/remote-driver.js';
import { REMOTE_DRIVERS } from '../remote/remote-drivers.js';
import { badOption, isBoolean, parseBoolean, parseInteger, parseSize, type LogOptions } from './option-values.js';
import { ownMember } from '../../text/own-member.js';

/** Every driver has these options. */
export const COMMON_OPTIONS: ReadonlySet<string> = new Set([
  'mode',
  'max-buffer-size',
  'cache-disabled',
  'cache-max-file',
  'cache-max-size',
  'cache-compress',
]);
/** The drivers that keep logs here, and their own options. */
export const LOCAL_DRIVERS: Readonly<Record<string, ReadonlySet<string>>> = {
  none: new Set(),
  'json-file': new Set(['max-file', 'max-size', 'compress', ...ATTRIBUTE_OPTIONS]),
  local: new Set(['max-file', 'max-size', 'compress']),
};
const DEFAULT_BUFFER_BYTES = 1 << 20;
const LOCAL_MAX_BYTES = 20 * 1024 * 1024;
const LOCAL_MAX_FILES = 5;

/** Names of the drivers, for `/info`. */
export const LOG_DRIVERS: readonly string[] = [
  ...Object.keys(LOCAL_DRIVERS).filter((name) => name !== 'none'),
  ...Object.keys(REMOTE_DRIVERS),
].sort();

/** Does `LogDriver.validate`: checks the names of drivers and options, and the options that all drivers have. */
export function validateLogOptions(driver: string, options: LogOptions): void {
  if (driver === 'none') return;
  validateCommonOptions(options);
  const own = Object.entries(options).filter(([name]) => !COMMON_OPTIONS.has(name));
  const remote = ownMember(REMOTE_DRIVERS, driver);
  if (remote) return remote.validate(Object.fromEntries(own));
  const known = ownMember(LOCAL_DRIVERS, driver);
  if (!known)
    throw invalid(`error looking up logging plugin ${driver}: plugin ${JSON.stringify(driver)} not found`, {
      code: 'LOG_DRIVER_UNKNOWN',
    });
  for (const [name] of own) {
    if (!known.has(name))
      throw badOption(
        driver === 'json-file'
          ? `unknown log opt '${name}' for json-file log driver`
          : `unknown log opt '${name}' for log driver ${driver}`,
      );
  }
}

/** Returns the path of the server's socket, where valid options of a driver name one. */
export function namedSocket(driver: string, options: LogOptions): string | undefined {
  return ownMember(REMOTE_DRIVERS, driver)?.socketPath?.(options);
}

/** Makes the refusal of options that name a socket which is not there. */
export function missingSocket(path: string): Error {
  return badOption(`stat ${path}: no such file or directory`);
}

/** Lists of names in them are looked for among labels and variables at each start. */
const MAX_VALUE_CHARS = 64 * 1024;

/** Checks the options that all drivers have. @throws EngineError invalid. */
export function validateCommonOptions(options: LogOptions): void {
  const [long] = Object.entries(options).find(([, value]) => value.length > MAX_VALUE_CHARS) ?? [];
  if (long !== undefined) throw badOption(`log opt '${long}' is longer than ${MAX_VALUE_CHARS} characters`);
  bufferLimit(options);
  const { 'cache-disabled': cacheDisabled } = options;
  if (cacheDisabled && !isBoolean(cacheDisabled))
    throw badOption(`invalid value for option cache-disabled: ${cacheDisabled}`);
}

/** Returns how many bytes may wait in non-blocking mode; undefined in blocking mode. */
export function bufferLimit(options: LogOptions): number | undefined {
  const { mode = '', 'max-buffer-size': size } = options;
  if (!['', 'blocking', 'non-blocking'].includes(mode)) throw badOption(`logger: logging mode not supported: ${mode}`);
  if (size === undefined) return mode === 'non-blocking' ? DEFAULT_BUFFER_BYTES : undefined;
  if (mode !== 'non-blocking')
    throw badOption("logger: max-buffer-size option is only supported with 'mode=non-blocking'");
  return parseSize(size, 1024, 'error parsing option max-buffer-size: ');
}

/** True when the log of a driver that cannot be read has a local copy. */
export function isCached(options: LogOptions): boolean {
  return !parseBoolean(options['cache-disabled'] || 'false');
}

/** Says when the local copy of a remote log begins a new file. */
export function cachePolicy(options: LogOptions): RotationPolicy {
  const named = ['max-size', 'max-file', 'compress'].flatMap((name) => {
    const value = options[`cache-${name}`];
    return value === undefined ? [] : [[name, value] as const];
  });
  return localPolicy(Object.fromEntries(named));
}

/** Says when json-file begins a new file: by default never. */
export function jsonFilePolicy(options: LogOptions): RotationPolicy {
  const maxBytes = options['max-size'] === undefined ? Number.POSITIVE_INFINITY : parseSize(options['max-size'], 1000);
  if (maxBytes <= 0) throw badOption('max-size must be a positive number');
  const maxFiles = parseInteger(options['max-file'] ?? '1');
  if (maxFiles < 1) throw badOption('max-file cannot be less than 1');
  const compress = parseBoolean(options['compress'] ?? 'false');
  if (compress && (maxFiles === 1 || maxBytes === Number.POSITIVE_INFINITY)) {
    throw badOption('compress cannot be true when max-file is less than 2 or max-size is not set');
  }
  return { maxBytes, maxFiles, compress };
}

/** Says when the local driver begins a new file. */
export function localPolicy(options: LogOptions): RotationPolicy {
  const { 'max-size': size, 'max-file': count, compress: compression } = options;
  const maxBytes =
    size === undefined ? LOCAL_MAX_BYTES : parseSize(size, 1000, `invalid value for max-size: ${size}: `);
  const maxFiles =
    count === undefined ? LOCAL_MAX_FILES : parseInteger(count, `invalid value for max-file: ${count}: `);
  const compress = compression === undefined || parseBoolean(compression, 'error reading compress log option: ');
  if (maxFiles < 0) throw badOption('max file count cannot be less than 0');
  if (compress && maxFiles <= 1) throw badOption('compression cannot be enabled when max file count is 1');
  return { maxBytes: maxBytes === 0 ? Number.POSITIVE_INFINITY : maxBytes, maxFiles, compress };
}
