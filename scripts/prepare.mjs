/** From a bare clone to a build: what npm run quickstart, npm test and npm run bench have in common. Plain Node. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePackages, ROOT } from './ensure-packages.mjs';
import { ensurePeers } from './peers.mjs';

/** Runs a step with the terminal of this process. Throws when it fails. */
export function step(program, args) {
  const { status, error } = spawnSync(program, args, { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed with status ${status}`);
}

/** Whether node_modules holds just the versions of package-lock.json. */
function dependenciesAreInstalled() {
  const installedPath = join(ROOT, 'node_modules', '.package-lock.json');
  if (!existsSync(installedPath)) return false;
  const packages = (path) => JSON.parse(readFileSync(path, 'utf8')).packages;
  const installed = packages(installedPath);
  return Object.entries(packages(join(ROOT, 'package-lock.json'))).every(
    ([path, wanted]) => path === '' || wanted.optional || installed[path]?.version === wanted.version,
  );
}

/**
 * Installs Debian packages and npm dependencies where they are missing, and compiles. `peer` is a version of dockerd.
 */
export function prepare(purpose, peer) {
  ensurePackages(purpose);
  if (!dependenciesAreInstalled()) step('npm', ['ci', '--no-audit', '--no-fund']);
  if (purpose === 'test' || purpose === 'bench') ensurePeers(peer);
  step('npm', ['run', '--silent', 'build']);
}

/** Runs `main` and turns a failure into one line on stderr and exit status 1. */
export async function command(name, main) {
  try {
    await main();
  } catch (error) {
    console.error(`${name}: ${error.message}`);
    process.exitCode = 1;
  }
}
