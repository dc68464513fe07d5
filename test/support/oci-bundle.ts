/** A root file system of busybox and a minimal OCI spec for it, for tests that drive the supervisor directly. */
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { OciSpec } from '../../src/ports/supervisor.js';

const applets = ['sh', 'true', 'echo', 'cat', 'sleep', 'dd', 'stty', 'seq', 'printf', 'kill', 'tail', 'wc', 'md5sum'];

/** Fills `dir` with a busybox user land. */
export function makeRootfs(dir: string): void {
  for (const name of ['bin', 'dev', 'proc', 'sys', 'tmp', 'etc']) mkdirSync(join(dir, name), { recursive: true });
  cpSync('/bin/busybox', join(dir, 'bin/busybox'));
  for (const applet of applets) symlinkSync('busybox', join(dir, 'bin', applet));
}

export interface SpecRequest {
  readonly rootfs: string;
  readonly args: readonly string[];
  /** Absolute, so that the runtime does not put it below containerd's own cgroup. */
  readonly cgroupsPath: string;
  readonly terminal?: boolean;
  readonly memoryBytes?: number;
}

/** The `process` object of a spec. */
export function ociProcess(args: readonly string[], terminal = false): Record<string, unknown> {
  return {
    terminal,
    ...(terminal && { consoleSize: { height: 24, width: 80 } }),
    user: { uid: 0, gid: 0 },
    args,
    env: ['PATH=/bin', 'TERM=xterm'],
    cwd: '/',
  };
}

export function ociSpec({ rootfs, args, cgroupsPath, terminal = false, memoryBytes }: SpecRequest): OciSpec {
  return {
    ociVersion: '1.0.2',
    process: ociProcess(args, terminal),
    root: { path: rootfs, readonly: false },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
      { destination: '/dev/pts', type: 'devpts', source: 'devpts', options: ['newinstance', 'ptmxmode=0666'] },
    ],
    linux: {
      cgroupsPath,
      namespaces: ['pid', 'network', 'ipc', 'uts', 'mount'].map((type) => ({ type })),
      resources: {
        devices: [{ allow: true, access: 'rwm' }],
        ...(memoryBytes !== undefined && { memory: { limit: memoryBytes } }),
      },
    },
  };
}
