/** Facts about the host that `info` and `version` show, read once at start. */
import { readFile } from 'node:fs/promises';
import { arch, cpus, hostname, release, totalmem } from 'node:os';

export interface HostInfo {
  readonly kernelVersion: string;
  readonly operatingSystem: string;
  readonly osVersion: string;
  /** Name as `uname -m` has it: `x86_64`. */
  readonly machine: string;
  /** Name as images have it: `amd64`. */
  readonly architecture: string;
  readonly cpuCount: number;
  readonly memoryBytes: number;
  readonly hostname: string;
}

const MACHINES: Readonly<Record<string, readonly [machine: string, architecture: string]>> = {
  x64: ['x86_64', 'amd64'],
  arm64: ['aarch64', 'arm64'],
  arm: ['armv7l', 'arm'],
  ia32: ['i686', '386'],
  ppc64: ['ppc64le', 'ppc64le'],
  s390x: ['s390x', 's390x'],
  riscv64: ['riscv64', 'riscv64'],
};

export async function readHostInfo(): Promise<HostInfo> {
  const release_ = await osRelease();
  const [machine, architecture] = MACHINES[arch()] ?? [arch(), arch()];
  return {
    kernelVersion: release(),
    operatingSystem: release_.get('PRETTY_NAME') ?? 'Linux',
    osVersion: release_.get('VERSION_ID') ?? '',
    machine,
    architecture,
    cpuCount: cpus().length,
    memoryBytes: totalmem(),
    hostname: hostname(),
  };
}

async function osRelease(): Promise<ReadonlyMap<string, string>> {
  for (const path of ['/etc/os-release', '/usr/lib/os-release']) {
    const text = await readFile(path, 'utf8').catch(() => undefined);
    if (text === undefined) continue;
    return new Map(
      text.split('\n').flatMap((line) => {
        const match = /^([A-Z_]+)=(?:"(.*)"|(.*))$/.exec(line);
        return match ? [[match[1] ?? '', match[2] ?? match[3] ?? ''] as const] : [];
      }),
    );
  }
  return new Map();
}
