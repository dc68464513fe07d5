/**
 * Runs Debian's dockerd, the peer of compatibility tests and of the bench, and the docker CLI: both unpacked packages.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { EngineKind } from './engine.js';
import { isMachineNetwork } from './leftovers.js';

/** Where scripts/peers.mjs unpacks them. This file is in dist/test/support. */
const PEER_DIR = fileURLToPath(new URL('../../../node_modules/.cache/docker.io/', import.meta.url));
const CLI = fileURLToPath(new URL('../../../node_modules/.cache/docker-cli/usr/bin/docker', import.meta.url));

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The same one everywhere, whatever is on PATH. */
export function dockerCli(): string {
  if (!isExecutable(CLI)) throw new Error('there is no docker CLI: run node scripts/peers.mjs');
  return CLI;
}

/** Why tests that compare with dockerd cannot run here; false when they can. */
export function whyNoDockerd(): string | false {
  if (isMachineNetwork()) return 'needs a network of its own: npm test';
  return spawnSync(join(PEER_DIR, 'usr/sbin/dockerd'), ['--version']).status === 0
    ? false
    : 'dockerd is not unpacked, or lacks a library';
}

/**
 * dockerd with default settings and its files in one directory. It makes docker0 and rewrites the firewall, so it runs
 * only where that is nobody else's: in a network namespace apart from the machine's.
 */
export function dockerd(options: { readonly args?: readonly string[] } = {}): EngineKind {
  if (isMachineNetwork()) {
    throw new Error(
      'dockerd would change the network of the machine: run this under `unshare --net --mount`, as npm test and npm run bench do',
    );
  }
  const sbin = join(PEER_DIR, 'usr/sbin');
  const program = join(sbin, 'dockerd');
  if (!isExecutable(program)) throw new Error('dockerd is not unpacked: run node scripts/peers.mjs');
  return {
    name: 'dockerd',
    isTidy: false,
    mark: 'docker',
    // For its helper docker-proxy.
    env: { PATH: `${sbin}${delimiter}${process.env['PATH'] ?? ''}` },
    command(dir, socketPath) {
      mkdirSync(dir, { recursive: true });
      const configFile = join(dir, 'daemon.json');
      // It writes this key below /etc otherwise.
      writeFileSync(configFile, JSON.stringify({ 'deprecated-key-path': join(dir, 'key.json') }));
      return [
        program,
        '--config-file',
        configFile,
        '--host',
        `unix://${socketPath}`,
        '--data-root',
        join(dir, 'data'),
        '--exec-root',
        join(dir, 'exec'),
        '--pidfile',
        join(dir, 'docker.pid'),
        ...(options.args ?? []),
      ];
    },
  };
}
