/** Reads the configuration of an image, which any builder may have made. */
import { dataLoss, invalid } from '../errors/engine-error.js';
import { CONFIG_LIMITS, excessOf } from '../ports/config-limits.js';
import type { ImageConfigDocument } from '../ports/images.js';
import { ownMember } from '../text/own-member.js';
import { isDigest } from './reference.js';

/** Parses the document. @throws EngineError data-loss when it is no configuration of an image. */
export function parseConfig(bytes: Buffer): ImageConfigDocument {
  let config: ImageConfigDocument;
  try {
    config = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw dataLoss('invalid image configuration: not JSON', { code: 'BAD_CONFIG', cause: error });
  }
  // An image without layers has null in place of their list, or no list at all.
  const diffIds = config?.rootfs?.diff_ids ?? [];
  if (!isObject(config?.rootfs) || !Array.isArray(diffIds) || !diffIds.every(isDigest)) {
    throw dataLoss('invalid image configuration: no root file system', { code: 'BAD_CONFIG' });
  }
  for (const [name, is] of Object.entries(DOCUMENT)) requireType(config, name, is);
  const { config: given } = config;
  const runtime = isObject(given) ? withLists(given) : undefined;
  for (const [name, is] of Object.entries(runtime ? RUNTIME : {})) requireType(runtime, name, is, 'config.');
  return {
    ...config,
    ...(runtime && { config: runtime }),
    rootfs: { ...config.rootfs, diff_ids: diffIds },
  };
}

/**
 * Refuses a configuration that is about to be an image and has too much in it. Those of images that are here are taken
 * as they are. @throws EngineError invalid that names the member.
 */
export function requireModest(config: ImageConfigDocument, bytes: Buffer): void {
  const isLong = bytes.length > CONFIG_LIMITS.bytes;
  const excess = isLong ? `it is larger than ${CONFIG_LIMITS.bytes} bytes` : excessOf(config);
  if (excess !== undefined) throw invalid(`invalid image configuration: ${excess}`, { code: 'BAD_CONFIG' });
}

/** Tells whether a value is of a type. */
type Type = (value: unknown) => boolean;

const text: Type = (value) => typeof value === 'string';
const flag: Type = (value) => typeof value === 'boolean';
const whole: Type = (value) => Number.isSafeInteger(value);
const list =
  (is: Type): Type =>
  (value) =>
    Array.isArray(value) && value.every(is);
const table =
  (is: Type): Type =>
  (value) => {
    if (!isTable(value)) return false;
    for (const name in value) if (value[name] !== null && !is(value[name])) return false;
    return true;
  };
const members =
  (types: Readonly<Record<string, Type>>): Type =>
  (value) =>
    isTable(value) && Object.entries(types).every(([name, is]) => isOf(value, name, is));

/** The types of the members, each of which may be absent or null. What dockerd does not know either may be anything. */
const DOCUMENT: Readonly<Record<string, Type>> = {
  ...ofType(text, 'architecture os variant os.version created author docker_version container comment'),
  'os.features': list(text),
  config: table(() => true),
  history: list(members({ ...ofType(text, 'created author created_by comment'), empty_layer: flag })),
};
const RUNTIME: Readonly<Record<string, Type>> = {
  ...ofType(text, 'User WorkingDir StopSignal Hostname Domainname Image MacAddress'),
  ...ofType(list(text), 'Env Cmd Entrypoint OnBuild Shell'),
  ...ofType(flag, 'Tty OpenStdin StdinOnce AttachStdin AttachStdout AttachStderr ArgsEscaped NetworkDisabled'),
  ...ofType(table(isTable), 'Volumes ExposedPorts'),
  Labels: table(text),
  StopTimeout: whole,
  Healthcheck: members({ Test: list(text), ...ofType(whole, 'Interval Timeout StartPeriod StartInterval Retries') }),
};

function ofType(is: Type, names: string): Record<string, Type> {
  return Object.fromEntries(names.split(' ').map((name) => [name, is]));
}

/** @throws EngineError data-loss that names the member. */
function requireType(value: unknown, name: string, is: Type, prefix = ''): void {
  if (isOf(value, name, is)) return;
  throw dataLoss(`invalid image configuration: ${prefix}${name} is of another type`, { code: 'BAD_CONFIG' });
}

function isOf(value: unknown, name: string, is: Type): boolean {
  const member = ownMember(value as Readonly<Record<string, unknown>>, name) ?? null;
  return member === null || is(member);
}

/** A command may be a text, as in images of long ago. */
function withLists(config: object): ImageConfigDocument['config'] & object {
  const { Cmd, Entrypoint } = config as { readonly Cmd?: unknown; readonly Entrypoint?: unknown };
  return {
    ...config,
    ...(typeof Cmd === 'string' && { Cmd: [Cmd] }),
    ...(typeof Entrypoint === 'string' && { Entrypoint: [Entrypoint] }),
  };
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return isObject(value) && !Array.isArray(value);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
