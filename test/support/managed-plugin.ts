/**
 * Directories of plugins for `docker plugin create`. Their program is Node's, which they get by a mount from the host:
 * so their own files stay small.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('plugin-program.js', import.meta.url));

/** Node with what it is linked to, in a directory that plugins mount at /runtime. */
export class PluginRuntime {
  readonly dir = mkdtempSync(join(tmpdir(), 'plugin-runtime-'));

  constructor() {
    copyFileSync(process.execPath, join(this.dir, 'node'));
    const linked = execFileSync('ldd', [process.execPath], { encoding: 'utf8' });
    for (const [path] of linked.matchAll(/\/[^\s()]+/g)) copyFileSync(path, join(this.dir, basename(path)));
    const loader = linked.split('\n').flatMap((line) => /(\/\S*\/ld-linux\S*)/.exec(line)?.[1] ?? []);
    symlinkSync(basename(loader[0] ?? ''), join(this.dir, 'loader'));
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** The configuration of a plugin that runs the program of tests in a mode. */
export function pluginConfig(types: readonly string[], mode = 'serve'): Record<string, unknown> {
  return {
    description: 'A plugin of the tests',
    documentation: 'none',
    interface: { types, socket: 'test.sock' },
    entrypoint: ['/runtime/loader', '--library-path', '/runtime', '/runtime/node', '/plugin.mjs', mode],
    workdir: '/',
    network: { type: 'none' },
    propagatedMount: '/mnt/volumes',
    linux: { capabilities: ['CAP_SYS_ADMIN'], allowAllDevices: false, devices: null },
    mounts: [
      {
        name: 'runtime',
        description: 'Node of the host',
        settable: ['source'],
        source: '/nowhere',
        destination: '/runtime',
        type: 'bind',
        options: ['rbind', 'ro'],
      },
    ],
    env: [
      { name: 'COLOUR', description: 'what volumes begin with', settable: ['value'], value: 'red' },
      { name: 'FIXED', description: 'cannot be changed', settable: null, value: '1' },
    ],
    args: { name: 'args', description: 'more arguments', settable: ['value'], value: [] },
  };
}

/** Makes a directory with `config.json` and `rootfs`; returns its path. */
export function makePluginDir(config: Readonly<Record<string, unknown>>): string {
  const dir = mkdtempSync(join(tmpdir(), 'plugin-'));
  const rootfs = join(dir, 'rootfs');
  for (const name of ['bin', 'mnt/volumes', 'proc', 'sys', 'dev', 'run', 'tmp', 'runtime', 'etc'])
    mkdirSync(join(rootfs, name), { recursive: true });
  for (const name of ['hosts', 'resolv.conf']) writeFileSync(join(rootfs, 'etc', name), '');
  // A way out of the plugin's own files.
  symlinkSync('/', join(rootfs, 'out'));
  copyFileSync('/bin/busybox', join(rootfs, 'bin/busybox'));
  copyFileSync(PROGRAM, join(rootfs, 'plugin.mjs'));
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config));
  return dir;
}
