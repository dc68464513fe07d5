/** Log drivers' options, checked with the texts that the Engine API's clients know (engine-api.md section 7). */
import { invalid } from '../errors/engine-error.js';
import type { RotationPolicy } from './log-file.js';

export type LogOptions = Readonly<Record<string, string>>;

const BUILT_IN: ReadonlySet<string> = new Set(['mode', 'max-buffer-size', 'cache-disabled', 'cache-max-file', 'cache-max-size', 'cache-compress']);
const KNOWN: Readonly<Record<string, ReadonlySet<string>>> = {
  none: new Set(),
  'json-file': new Set(['max-file', 'max-size', 'compress', 'labels', 'labels-regex', 'env', 'env-regex', 'tag']),
  local: new Set(['max-file', 'max-size', 'compress']),
};
/** `1`, `t`, `TRUE` and so on, as Go reads booleans. */
const BOOLEANS: ReadonlyMap<string, boolean> = new Map([
  ...['1', 't', 'T', 'true', 'TRUE', 'True'].map((text) => [text, true] as const),
  ...['0', 'f', 'F', 'false', 'FALSE', 'False'].map((text) => [text, false] as const),
]);
const DEFAULT_BUFFER_BYTES = 1 << 20;
const LOCAL_MAX_BYTES = 20 * 1024 * 1024;
const LOCAL_MAX_FILES = 5;

/** Names of the drivers, for `/info`. */
export const LOG_DRIVERS: readonly string[] = Object.keys(KNOWN).sort();

/** As `LogDriver.validate`: names of drivers and options, and the options that all drivers have. */
export function validateLogOptions(driver: string, options: LogOptions): void {
  if (driver === 'none') return;
  bufferLimit(options);
  const { 'cache-disabled': cacheDisabled } = options;
  if (cacheDisabled && !BOOLEANS.has(cacheDisabled)) throw bad(`invalid value for option cache-disabled: ${cacheDisabled}`);
  const known = KNOWN[driver];
  if (!known) throw invalid(`logger: no log driver named '${driver}' is registered`, { code: 'LOG_DRIVER_UNKNOWN' });
  for (const name of Object.keys(options)) {
    if (BUILT_IN.has(name) || known.has(name)) continue;
    throw bad(driver === 'json-file' ? `unknown log opt '${name}' for json-file log driver` : `unknown log opt '${name}' for log driver ${driver}`);
  }
}

/** Bytes that may wait in non-blocking mode; undefined in blocking mode. */
export function bufferLimit(options: LogOptions): number | undefined {
  const { mode = '', 'max-buffer-size': size } = options;
  if (!['', 'blocking', 'non-blocking'].includes(mode)) throw bad(`logger: logging mode not supported: ${mode}`);
  if (size === undefined) return mode === 'non-blocking' ? DEFAULT_BUFFER_BYTES : undefined;
  if (mode !== 'non-blocking') throw bad("logger: max-buffer-size option is only supported with 'mode=non-blocking'");
  return parseSize(size, 1024, 'error parsing option max-buffer-size: ');
}

/** When json-file begins a new file: by default never. */
export function jsonFilePolicy(options: LogOptions): RotationPolicy {
  const maxBytes = options['max-size'] === undefined ? Number.POSITIVE_INFINITY : parseSize(options['max-size'], 1000, '');
  if (maxBytes <= 0) throw bad('max-size must be a positive number');
  const maxFiles = integer(options['max-file'] ?? '1', '');
  if (maxFiles < 1) throw bad('max-file cannot be less than 1');
  const compress = boolean(options['compress'] ?? 'false', '');
  if (compress && (maxFiles === 1 || maxBytes === Number.POSITIVE_INFINITY)) {
    throw bad('compress cannot be true when max-file is less than 2 or max-size is not set');
  }
  return { maxBytes, maxFiles, compress };
}

/** When the local driver begins a new file. */
export function localPolicy(options: LogOptions): RotationPolicy {
  const { 'max-size': size, 'max-file': count, compress: compression } = options;
  const maxBytes = size === undefined ? LOCAL_MAX_BYTES : parseSize(size, 1000, `invalid value for max-size: ${size}: `);
  const maxFiles = count === undefined ? LOCAL_MAX_FILES : integer(count, `invalid value for max-file: ${count}: `);
  const compress = compression === undefined || boolean(compression, 'error reading compress log option: ');
  if (maxFiles < 0) throw bad('max file count cannot be less than 0');
  if (compress && maxFiles <= 1) throw bad('compression cannot be enabled when max file count is 1');
  return { maxBytes: maxBytes === 0 ? Number.POSITIVE_INFINITY : maxBytes, maxFiles, compress };
}

/** `10m`, `1.5 GB`, `64KiB`; the unit's prefix means powers of `base`. */
function parseSize(text: string, base: 1000 | 1024, context: string): number {
  const match = /^(.*[\d. ])([^\d. ]*)$/s.exec(text);
  if (!match) throw bad(`${context}invalid size: '${text}'`);
  const [, numberText = '', suffix = ''] = match;
  const digits = numberText.replace(/ $/, '');
  if (!/^[+-]?(\d+\.?\d*|\.\d+)$/.test(digits)) throw bad(`${context}strconv.ParseFloat: parsing ${JSON.stringify(digits)}: invalid syntax`);
  const value = Number(digits);
  if (value < 0) throw bad(`${context}invalid size: '${text}'`);
  const unit = /^(?:b|([kmgtp])(?:b|ib)?)?$/.exec(suffix.toLowerCase());
  if (!unit) throw bad(`${context}invalid suffix: '${suffix.toLowerCase()}'`);
  return Math.trunc(value * base ** ('kmgtp'.indexOf(unit[1] ?? '?') + 1));
}

function integer(text: string, context: string): number {
  if (!/^[+-]?\d+$/.test(text)) throw bad(`${context}strconv.Atoi: parsing ${JSON.stringify(text)}: invalid syntax`);
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw bad(`${context}strconv.Atoi: parsing ${JSON.stringify(text)}: value out of range`);
  return value;
}

function boolean(text: string, context: string): boolean {
  const value = BOOLEANS.get(text);
  if (value === undefined) throw bad(`${context}strconv.ParseBool: parsing ${JSON.stringify(text)}: invalid syntax`);
  return value;
}

function bad(message: string): Error {
  return invalid(message, { code: 'LOG_OPTION' });
}
