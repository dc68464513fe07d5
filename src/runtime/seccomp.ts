/** Seccomp profiles as users write them, turned into the filter of one container. */
import { readFile } from 'node:fs/promises';
import { invalid, messageOf } from '../errors/engine-error.js';
import { isAtLeast, parseVersion, type Version } from '../text/version.js';
import type { OciSeccomp, OciSyscall } from './oci-types.js';

interface Conditions {
  readonly arches?: readonly string[] | null;
  readonly caps?: readonly string[] | null;
  /** `major.minor`. */
  readonly minKernel?: string | null;
}

export interface SeccompRule {
  readonly names?: readonly string[] | null;
  /** Old form of `names`. */
  readonly name?: string | null;
  readonly action: string;
  readonly errnoRet?: number | null;
  readonly args?:
    | readonly { readonly index: number; readonly value: number; readonly valueTwo?: number; readonly op: string }[]
    | null;
  /** The rule applies when all of these conditions hold. */
  readonly includes?: Conditions | null;
  /** The rule is left out when any of these conditions holds. */
  readonly excludes?: Conditions | null;
}

export interface SeccompProfile {
  readonly defaultAction: string;
  readonly defaultErrnoRet?: number | null;
  readonly architectures?: readonly string[] | null;
  readonly archMap?:
    | readonly { readonly architecture: string; readonly subArchitectures: readonly string[] | null }[]
    | null;
  readonly flags?: readonly string[] | null;
  readonly listenerPath?: string;
  readonly listenerMetadata?: string;
  readonly syscalls?: readonly SeccompRule[] | null;
}

export interface SeccompTarget {
  /** As in images: `amd64`. */
  readonly architecture: string;
  readonly kernel: Version;
  /** The container's bounding set. */
  readonly capabilities: readonly string[];
}

/** libseccomp's names for the architectures of images. */
const NATIVE: Readonly<Record<string, string>> = {
  amd64: 'SCMP_ARCH_X86_64',
  arm64: 'SCMP_ARCH_AARCH64',
  arm: 'SCMP_ARCH_ARM',
  386: 'SCMP_ARCH_X86',
  ppc64le: 'SCMP_ARCH_PPC64LE',
  s390x: 'SCMP_ARCH_S390X',
  riscv64: 'SCMP_ARCH_RISCV64',
};

/** Each start reads it anew, on the main thread. One that names all calls for all architectures has a tenth of this. */
const MAX_CHARS = 256 * 1024;

/**
 * Reads the text of a profile, in the engine's form (archMap, includes, excludes) or as plain OCI.
 * @throws EngineError invalid `Decoding seccomp profile failed: …`.
 */
export function parseSeccompProfile(text: string): SeccompProfile {
  if (text.length > MAX_CHARS)
    throw invalid(`Decoding seccomp profile failed: it is longer than ${MAX_CHARS} characters`);
  let profile: unknown;
  try {
    profile = JSON.parse(text);
  } catch (error) {
    throw invalid(`Decoding seccomp profile failed: ${messageOf(error)}`, { cause: error });
  }
  return checkProfile(profile);
}

/** Does the same as `parseSeccompProfile`, from a file on the host. */
export async function loadSeccompProfile(path: string): Promise<SeccompProfile> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw invalid(`opening seccomp profile (${path}) failed: ${messageOf(error)}`, { cause: error });
  }
  return parseSeccompProfile(text);
}

function checkProfile(value: unknown): SeccompProfile {
  if (!isObject(value) || typeof value['defaultAction'] !== 'string')
    throw invalid('Decoding seccomp profile failed: defaultAction must be a string');
  requireMembers(value, '', PROFILE);
  const profile = value as unknown as SeccompProfile;
  if (profile.architectures?.length && profile.archMap?.length) {
    throw invalid(
      "both 'architectures' and 'archMap' are specified in the seccomp profile, " +
        "use either 'architectures' or 'archMap'",
    );
  }
  for (const [index, one] of (profile.archMap ?? []).entries()) requireObject(one, `archMap[${index}]`, ARCHITECTURE);
  for (const [index, rule] of (profile.syscalls ?? []).entries()) checkRule(rule, `syscalls[${index}]`);
  return profile;
}

function checkRule(rule: SeccompRule, where: string): void {
  requireObject(rule, where, RULE);
  if (typeof rule.action !== 'string')
    throw invalid(`Decoding seccomp profile failed: ${where}.action must be a string`);
  if (rule.name && rule.names?.length)
    throw invalid("both 'name' and 'names' are specified in the seccomp profile, use either 'name' or 'names'");
  for (const [index, argument] of (rule.args ?? []).entries())
    requireObject(argument, `${where}.args[${index}]`, ARGUMENT);
  requireMembers(rule.includes ?? {}, `${where}.includes.`, CONDITIONS);
  requireMembers(rule.excludes ?? {}, `${where}.excludes.`, CONDITIONS);
}

/** A test of a value that is there, and what it must be. */
type Wanted = readonly [test: (value: unknown) => boolean, words: string];
type Members = Readonly<Record<string, Wanted>>;

const TEXT: Wanted = [(value) => typeof value === 'string', 'a string'];
const LIST: Wanted = [Array.isArray, 'an array'];
const OBJECT: Wanted = [isObject, 'an object'];
const TEXTS: Wanted = [(value) => Array.isArray(value) && value.every(TEXT[0]), 'an array of strings'];
/** A larger number would be another one here than in the text, and so the filter not what was written. */
const NUMBER: Wanted = [(value) => Number.isSafeInteger(value) && Number(value) >= 0, 'an integer from 0 to 2^53 - 1'];

const PROFILE: Members = {
  defaultErrnoRet: NUMBER,
  architectures: TEXTS,
  archMap: LIST,
  flags: TEXTS,
  listenerPath: TEXT,
  listenerMetadata: TEXT,
  syscalls: LIST,
};
const ARCHITECTURE: Members = { architecture: TEXT, subArchitectures: TEXTS };
const RULE: Members = {
  names: TEXTS,
  name: TEXT,
  errnoRet: NUMBER,
  args: LIST,
  includes: OBJECT,
  excludes: OBJECT,
};
const ARGUMENT: Members = { index: NUMBER, value: NUMBER, valueTwo: NUMBER, op: TEXT };
const CONDITIONS: Members = { arches: TEXTS, caps: TEXTS, minKernel: TEXT };

/** Checks the members that are there; null is absence, as to Go. */
function requireMembers(object: object, where: string, members: Members): void {
  const given = new Map<string, unknown>(Object.entries(object));
  for (const [name, [test, words]] of Object.entries(members)) {
    const value = given.get(name) ?? undefined;
    if (value !== undefined && !test(value))
      throw invalid(`Decoding seccomp profile failed: ${where}${name} must be ${words}`);
  }
}

function requireObject(value: unknown, where: string, members: Members): void {
  if (!isObject(value)) throw invalid(`Decoding seccomp profile failed: ${where} must be an object`);
  requireMembers(value, `${where}.`, members);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the filter of a container that runs on `target`. */
export function buildSeccomp(profile: SeccompProfile, target: SeccompTarget): OciSeccomp {
  const native = NATIVE[target.architecture];
  const mapped = profile.archMap?.find(({ architecture }) => architecture === native);
  const architectures =
    profile.architectures ?? (mapped ? [mapped.architecture, ...(mapped.subArchitectures ?? [])] : []);
  return {
    defaultAction: profile.defaultAction,
    ...(typeof profile.defaultErrnoRet === 'number' ? { defaultErrnoRet: profile.defaultErrnoRet } : {}),
    ...(architectures.length === 0 ? {} : { architectures }),
    ...(profile.flags ? { flags: profile.flags } : {}),
    ...(profile.listenerPath
      ? { listenerPath: profile.listenerPath, listenerMetadata: profile.listenerMetadata ?? '' }
      : {}),
    syscalls: (profile.syscalls ?? []).filter((rule) => applies(rule, target)).map(toOci),
  };
}

function applies(rule: SeccompRule, { architecture, capabilities, kernel }: SeccompTarget): boolean {
  const includes = rule.includes ?? {};
  const excludes = rule.excludes ?? {};
  if (excludes.arches?.includes(architecture)) return false;
  if (excludes.caps?.some((name) => capabilities.includes(name))) return false;
  if (excludes.minKernel && isAtLeast(kernel, parseVersion(excludes.minKernel))) return false;
  if (includes.arches?.length && !includes.arches.includes(architecture)) return false;
  if (includes.caps?.some((name) => !capabilities.includes(name))) return false;
  return !includes.minKernel || isAtLeast(kernel, parseVersion(includes.minKernel));
}

function toOci({ name, names, action, errnoRet, args }: SeccompRule): OciSyscall {
  return {
    names: names?.length ? names : [name ?? ''],
    action,
    ...(typeof errnoRet === 'number' ? { errnoRet } : {}),
    ...(args?.length ? { args } : {}),
  };
}
