/**
 * Runs Debian's dockerd, the peer of compatibility tests and of the bench, in a root directory of the release that has
 * it; and the docker CLI with its plugin compose, unpacked packages.
 */
import { accessSync, constants, mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { EngineKind } from './engine.js';
import { isMachineNetwork } from './leftovers.js';

/** Where scripts/peers.mjs puts them. This file is in dist/test/support. */
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/', import.meta.url));
/** The version is that of `npm run compare -- --peer VERSION`. */
const PEER_ROOT = join(CACHE, `dockerd-${process.env['ENGINE_PEER'] ?? '28.5'}`);
const ENTER_ROOT = fileURLToPath(new URL('../../../scripts/enter-root.sh', import.meta.url));
const CLI = join(CACHE, 'docker-cli/usr/bin/docker');
const COMPOSE_PLUGINS = join(CACHE, 'docker-compose/usr/libexec/docker/cli-plugins');
const BUILDX_PLUGINS = join(CACHE, 'docker-buildx/usr/libexec/docker/cli-plugins');

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

/**
 * In the environment of the CLI and its plugins: they live for a moment, in which Go collects several times, so it does
 * that only for more memory than they should ever have.
 */
export const SHORT_LIVED = { GOGC: 'off', GOMEMLIMIT: '256MiB' };

/** The directory with `docker compose`, for `cliPluginsExtraDirs`; undefined where scripts/peers.mjs did not run. */
export function composePlugins(): string | undefined {
  return isExecutable(join(COMPOSE_PLUGINS, 'docker-compose')) ? COMPOSE_PLUGINS : undefined;
}

/** The directory with `docker buildx`, for `cliPluginsExtraDirs`; undefined where scripts/peers.mjs did not run. */
export function buildxPlugins(): string | undefined {
  return isExecutable(join(BUILDX_PLUGINS, 'docker-buildx')) ? BUILDX_PLUGINS : undefined;
}

/** The program of the plugin, which needs no CLI around it. */
export function buildxProgram(): string {
  return join(BUILDX_PLUGINS, 'docker-buildx');
}

/** So is that of `docker compose`. */
export function composeProgram(): string {
  return join(COMPOSE_PLUGINS, 'docker-compose');
}

/** Why tests that compare with dockerd cannot run here; false when they can. */
export function whyNoDockerd(): string | false {
  if (isMachineNetwork()) return 'needs a network of its own: npm test';
  return isExecutable(join(PEER_ROOT, 'usr/sbin/dockerd')) ? false : 'needs dockerd: node scripts/peers.mjs';
}

/**
 * dockerd with default settings and its files in one directory. It makes docker0 and rewrites the firewall, so it runs
 * only where that is nobody else's: in a network namespace apart from the machine's.
 */
export function dockerd(options: { readonly args?: readonly string[] } = {}): EngineKind {
  if (isMachineNetwork()) {
    throw new Error(
      'dockerd would change the network of the machine: run this under `unshare --net --mount`, ' +
        'as npm test and npm run bench do',
    );
  }
  const missing = whyNoDockerd();
  if (missing !== false) throw new Error(missing);
  return {
    name: 'dockerd',
    isTidy: false,
    mark: 'docker',
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    command(dir, socketPath) {
      mkdirSync(dir, { recursive: true });
      const configFile = join(dir, 'daemon.json');
      // It writes this key below /etc otherwise.
      writeFileSync(configFile, JSON.stringify({ 'deprecated-key-path': join(dir, 'key.json') }));
      return [
        'unshare',
        '--mount',
        '--propagation',
        'private',
        'sh',
        ENTER_ROOT,
        PEER_ROOT,
        tmpdir(),
        'dockerd',
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
