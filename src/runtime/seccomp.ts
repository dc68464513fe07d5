/** Seccomp profiles as users write them, turned into the filter of one container. */
import { readFile } from 'node:fs/promises';
import { invalid, messageOf } from '../errors/engine-error.js';
import { isAtLeast, parseVersion, type Version } from '../text/version.js';
import type { OciSeccomp, OciSyscall } from './oci-types.js';

interface Conditions {
  readonly arches?: readonly string[];
  readonly caps?: readonly string[];
  /** `major.minor`. */
  readonly minKernel?: string;
}

export interface SeccompRule {
  readonly names?: readonly string[];
  /** Old form of `names`. */
  readonly name?: string;
  readonly action: string;
  readonly errnoRet?: number;
  readonly args?:
    | readonly { readonly index: number; readonly value: number; readonly valueTwo?: number; readonly op: string }[]
    | null;
  /** The rule applies when all of these conditions hold. */
  readonly includes?: Conditions;
  /** The rule is left out when any of these conditions holds. */
  readonly excludes?: Conditions;
}

export interface SeccompProfile {
  readonly defaultAction: string;
  readonly defaultErrnoRet?: number;
  readonly architectures?: readonly string[] | null;
  readonly archMap?:
    | readonly { readonly architecture: string; readonly subArchitectures: readonly string[] | null }[]
    | null;
  readonly flags?: readonly string[];
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

/**
 * Reads the text of a profile, in the engine's form (archMap, includes, excludes) or as plain OCI.
 * @throws EngineError invalid `Decoding seccomp profile failed: …`.
 */
export function parseSeccompProfile(text: string): SeccompProfile {
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
  const profile = value as unknown as SeccompProfile;
  if (!isList(profile.syscalls) || !isList(profile.architectures) || !isList(profile.archMap)) {
    throw invalid('Decoding seccomp profile failed: syscalls, architectures and archMap must be arrays');
  }
  if (profile.architectures?.length && profile.archMap?.length) {
    throw invalid(
      "both 'architectures' and 'archMap' are specified in the seccomp profile, " +
        "use either 'architectures' or 'archMap'",
    );
  }
  for (const rule of profile.syscalls ?? []) {
    if (!isObject(rule) || typeof rule.action !== 'string' || !isList(rule.names) || !isList(rule.args)) {
      throw invalid('Decoding seccomp profile failed: a syscall entry needs names and an action');
    }
    if (rule.name && rule.names?.length)
      throw invalid("both 'name' and 'names' are specified in the seccomp profile, use either 'name' or 'names'");
  }
  return profile;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isList(value: unknown): boolean {
  return value === undefined || value === null || Array.isArray(value);
}

/** Returns the filter of a container that runs on `target`. */
export function buildSeccomp(profile: SeccompProfile, target: SeccompTarget): OciSeccomp {
  const native = NATIVE[target.architecture];
  const mapped = profile.archMap?.find(({ architecture }) => architecture === native);
  const architectures =
    profile.architectures ?? (mapped ? [mapped.architecture, ...(mapped.subArchitectures ?? [])] : []);
  return {
    defaultAction: profile.defaultAction,
    ...(profile.defaultErrnoRet === undefined ? {} : { defaultErrnoRet: profile.defaultErrnoRet }),
    ...(architectures.length === 0 ? {} : { architectures }),
    ...(profile.flags ? { flags: profile.flags } : {}),
    ...(profile.listenerPath
      ? { listenerPath: profile.listenerPath, listenerMetadata: profile.listenerMetadata ?? '' }
      : {}),
    syscalls: (profile.syscalls ?? []).filter((rule) => applies(rule, target)).map(toOci),
  };
}

function applies(
  { includes = {}, excludes = {} }: SeccompRule,
  { architecture, capabilities, kernel }: SeccompTarget,
): boolean {
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
    ...(errnoRet === undefined ? {} : { errnoRet }),
    ...(args?.length ? { args } : {}),
  };
}
