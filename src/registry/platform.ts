/**
 * Parses platforms as clients write them, finds out this machine's, and picks the image of an index that suits best.
 */
import { readFileSync } from 'node:fs';
import { arch } from 'node:os';
import { invalid } from '../errors/engine-error.js';
import type { Descriptor, ManifestPlatform } from './manifest.js';
import { ownMember } from '../text/own-member.js';

export type Platform = ManifestPlatform;

const ARCHITECTURES: Readonly<Record<string, readonly [string, string]>> = {
  x86_64: ['amd64', ''],
  'x86-64': ['amd64', ''],
  i386: ['386', ''],
  aarch64: ['arm64', ''],
  armhf: ['arm', 'v7'],
  armel: ['arm', 'v6'],
};
const NODE_ARCHITECTURES: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  arm64: 'arm64',
  arm: 'arm',
  ppc64: 'ppc64le',
  s390x: 's390x',
  riscv64: 'riscv64',
  loong64: 'loong64',
};

const words = (text: string): ReadonlySet<string> => new Set(text.split(' '));
/** The systems and architectures that images can be for (`GOOS` and `GOARCH`). */
const SYSTEMS = words(
  'aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd openbsd plan9 solaris windows zos',
);
const KNOWN_ARCHITECTURES = words(
  '386 amd64 amd64p32 arm armbe arm64 arm64be loong64 mips mipsle mips64 mips64le mips64p32 mips64p32le ppc ppc64 ' +
    'ppc64le riscv riscv64 s390 s390x sparc sparc64 wasm',
);

/** CPU flags that each amd64 level adds to the one below. */
const AMD64_LEVELS: readonly (readonly string[])[] = [
  ['cx16', 'lahf_lm', 'popcnt', 'sse4_1', 'sse4_2', 'ssse3'],
  ['avx', 'avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'abm', 'movbe', 'xsave'],
  ['avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'],
];

/**
 * Returns the one spelling of a platform: aliases are replaced, and the default variant of an architecture is left out.
 */
export function normalisePlatform({ os, architecture, variant }: Platform): Platform {
  const [name, implied] = ownMember(ARCHITECTURES, architecture.toLowerCase()) ?? [architecture.toLowerCase(), ''];
  let normal = variant.toLowerCase() || implied;
  if (name === 'amd64' && normal === 'v1') normal = '';
  if (name === 'arm64' && (normal === '8' || normal === 'v8')) normal = '';
  if (name === 'arm') normal = normal === '' ? 'v7' : /^\d/.test(normal) ? `v${normal}` : normal;
  return { os: os.toLowerCase() === 'macos' ? 'darwin' : os.toLowerCase(), architecture: name, variant: normal };
}

/**
 * Parses `os`, `arch` or `os/arch[/variant]`. A single word must be a system or an architecture that is known, because
 * nothing else tells which of them it is. Throws `invalid`.
 */
export function parsePlatform(text: string): Platform {
  const fault = (what: string): Error =>
    invalid(`${JSON.stringify(text)}: ${what}: invalid argument`, { code: 'INVALID_PLATFORM' });
  const parts = text.split('/');
  const isBad = parts.length > 3 || parts.some((part) => !/^[A-Za-z0-9_.-]+$/.test(part));
  if (isBad) throw fault('cannot parse platform specifier');
  const [first = '', second, third] = parts;
  const host = hostPlatform();
  if (second !== undefined) return normalisePlatform({ os: first, architecture: second, variant: third ?? '' });
  const asSystem = normalisePlatform({ os: first, architecture: host.architecture, variant: '' });
  if (SYSTEMS.has(asSystem.os)) return asSystem;
  const asArchitecture = normalisePlatform({ os: host.os, architecture: first, variant: '' });
  if (!KNOWN_ARCHITECTURES.has(asArchitecture.architecture)) throw fault('unknown operating system or architecture');
  return asArchitecture;
}

/** Formats a platform as `linux/arm/v7`. */
export function formatPlatform({ os, architecture, variant }: Platform): string {
  return [os, architecture, variant].filter((part) => part !== '').join('/');
}

let host: Platform | undefined;

/** Returns the platform of this machine, for amd64 with its level. */
export function hostPlatform(): Platform {
  host ??= normalisePlatform({
    os: 'linux',
    architecture: NODE_ARCHITECTURES[arch()] ?? arch(),
    variant: arch() === 'x64' ? amd64Level() : '',
  });
  return host;
}

function amd64Level(): string {
  const flags = new Set(
    readFileSync('/proc/cpuinfo', 'latin1')
      .split('\n')
      .find((line) => line.startsWith('flags'))
      ?.split(/\s+/),
  );
  const missing = AMD64_LEVELS.findIndex((level) => level.some((flag) => !flags.has(flag)));
  return `v${(missing < 0 ? AMD64_LEVELS.length : missing) + 1}`;
}

/** Returns the platforms that this platform can run, best first. */
function candidates(platform: Platform): Platform[] {
  const { os, architecture, variant } = normalisePlatform(platform);
  const lower = (prefix: number, name = architecture): Platform[] =>
    Array.from({ length: Math.max(0, prefix) }, (_, index) =>
      normalisePlatform({ os, architecture: name, variant: `v${prefix - index}` }),
    );
  const level = Number(/^v(\d+)/.exec(variant)?.[1] ?? 0);
  if (architecture === 'amd64') return lower(Math.max(level, 1));
  if (architecture === 'arm') return lower(level).slice(0, Math.max(1, level - 4));
  if (architecture === 'arm64')
    return [
      ...(variant === '' ? [] : [{ os, architecture, variant }]),
      { os, architecture, variant: '' },
      ...lower(8, 'arm').slice(0, 4),
    ];
  return [{ os, architecture, variant }];
}

/** True when `wanted` can run an image of platform `offered`. */
export function canRun(wanted: Platform, offered: Platform): boolean {
  return rank(candidates(wanted), offered) >= 0;
}

/** Returns how well a platform suits: 0 is best; undefined when `wanted` cannot run it. */
export function preference(wanted: Platform, offered: Platform): number | undefined {
  const own = rank(candidates(wanted), offered);
  return own < 0 ? undefined : own;
}

function rank(list: readonly Platform[], offered: Platform): number {
  const normal = formatPlatform(normalisePlatform(offered));
  return list.findIndex((candidate) => formatPlatform(candidate) === normal);
}

/**
 * Returns the entry of an index that suits best. Entries that name no platform come last; attestations
 * (`unknown/unknown`) and entries that are no manifests are left out. Undefined when none suits.
 */
export function bestManifest(entries: readonly Descriptor[], wanted: Platform): Descriptor | undefined {
  const list = candidates(wanted);
  let best: { readonly entry: Descriptor; readonly rank: number } | undefined;
  for (const entry of entries) {
    const own = entry.platform ? rank(list, entry.platform) : list.length;
    if (own >= 0 && (!best || own < best.rank)) best = { entry, rank: own };
  }
  return best?.entry;
}
