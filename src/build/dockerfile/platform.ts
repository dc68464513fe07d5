/** Names of platforms, such as `linux/arm/v7`, in the forms that clients write. */
import { DockerfileError } from './dockerfile-error.js';

export interface Platform {
  readonly os: string;
  readonly architecture: string;
  /** Empty when there is none. */
  readonly variant: string;
  readonly osVersion: string;
}

/** The host says what a name means that leaves something out. */
export type Host = Pick<Platform, 'os' | 'architecture'>;

const SYSTEMS: ReadonlySet<string> = new Set(
  'aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd openbsd plan9 solaris windows zos'.split(
    ' ',
  ),
);
const ARCHITECTURES: ReadonlySet<string> = new Set(
  [
    '386 amd64 amd64p32 arm armbe arm64 arm64be ppc64 ppc64le loong64 mips mipsle mips64 mips64le',
    'mips64p32 mips64p32le ppc riscv riscv64 s390 s390x sparc sparc64 wasm',
  ].flatMap((names) => names.split(' ')),
);
const SYSTEM = /^([A-Za-z0-9_-]+)(?:\(([A-Za-z0-9_.-]*)\))?$/;
/** The message of dockerd names this expression, which is the one above with features of systems. */
const SYSTEM_WORDS = '^([A-Za-z0-9_-]+)(?:\\(([A-Za-z0-9_.%-]*)((?:\\+[A-Za-z0-9_.%-]+)*)\\))?$';
const COMPONENT = /^[A-Za-z0-9_.-]+$/;

/** @throws DockerfileError without lines, in the words of the library that dockerd uses. */
export function parsePlatform(text: string, host: Host): Platform {
  const quoted = JSON.stringify(text);
  if (text.includes('*')) throw new DockerfileError(`${quoted}: wildcards not yet supported: invalid argument`);
  const parts = text.split('/', 4);
  const [first = '', second, third] = parts;
  const system = SYSTEM.exec(first);
  if (system === null) {
    throw new DockerfileError(
      `${JSON.stringify(first)} is an invalid OS component of ${quoted}: ` +
        `OSAndVersion specifier component must match ${JSON.stringify(SYSTEM_WORDS)}: invalid argument`,
    );
  }
  for (const part of parts.slice(1)) {
    if (COMPONENT.test(part)) continue;
    throw new DockerfileError(
      `${JSON.stringify(part)} is an invalid component of ${quoted}: ` +
        `platform specifier component must match ${JSON.stringify(COMPONENT.source)}: invalid argument`,
    );
  }
  const os = systemOf(system[1] ?? '');
  const osVersion = system[2] ?? '';
  if (second === undefined) return fromOneWord(text, os, osVersion, host);
  if (parts.length > 3 || text.split('/').length > 3)
    throw new DockerfileError(`${quoted}: cannot parse platform specifier: invalid argument`);
  const [architecture, variant] = normalArchitecture(second, third ?? '');
  const isDefault = third === undefined && architecture === 'arm' && variant === 'v7';
  const isFull = third !== undefined && architecture === 'arm64' && variant === '';
  return { os, osVersion, architecture, variant: isDefault ? '' : isFull ? 'v8' : variant };
}

function fromOneWord(text: string, os: string, osVersion: string, host: Host): Platform {
  if (SYSTEMS.has(os)) return { os, osVersion, architecture: host.architecture, variant: '' };
  const [architecture, variant] = normalArchitecture(text, '');
  if (!ARCHITECTURES.has(architecture)) {
    const quoted = JSON.stringify(text);
    throw new DockerfileError(`${quoted}: unknown operating system or architecture: invalid argument`);
  }
  const isDefault = architecture === 'arm' && variant === 'v7';
  return { os: host.os, osVersion: '', architecture, variant: isDefault ? '' : variant };
}

export function formatPlatform({ os, architecture, variant, osVersion }: Platform, hasVersion = true): string {
  if (os === '') return 'unknown';
  const system = hasVersion && osVersion !== '' ? `${os}(${osVersion})` : os;
  return [system, architecture, variant].filter((part) => part !== '').join('/');
}

function systemOf(text: string): string {
  const lower = text.toLowerCase();
  return lower === 'macos' ? 'darwin' : lower;
}

function normalArchitecture(text: string, written: string): readonly [architecture: string, variant: string] {
  const architecture = text.toLowerCase();
  const variant = written.toLowerCase();
  switch (architecture) {
    case 'i386':
      return ['386', ''];
    case 'x86_64':
    case 'x86-64':
    case 'amd64':
      return ['amd64', variant === 'v1' ? '' : variant];
    case 'aarch64':
    case 'arm64':
      if (['8', 'v8', 'v8.0'].includes(variant)) return ['arm64', ''];
      return ['arm64', ['9', '9.0', 'v9.0'].includes(variant) ? 'v9' : variant];
    case 'armhf':
      return ['arm', 'v7'];
    case 'armel':
      return ['arm', 'v6'];
    case 'arm':
      if (variant === '' || variant === '7') return ['arm', 'v7'];
      return ['arm', ['5', '6', '8'].includes(variant) ? `v${variant}` : variant];
    default:
      return [architecture, variant];
  }
}
