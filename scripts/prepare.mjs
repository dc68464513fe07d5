/** From a bare clone to a build: what npm run quickstart, npm test and npm run bench have in common. Plain Node. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePackages, ROOT } from './ensure-packages.mjs';
import { ensurePeers } from './peers.mjs';

/** A status that neither npm nor a compiler ends with. */
const IN_USE = 75;

/** Runs a step with the terminal of this process. Throws when it fails. */
export function step(program, args) {
  const { status, error } = spawnSync(program, args, { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed with status ${status}`);
}

/**
 * A command line for what runs with node_modules and dist: as long as it runs, no `prepare` of this directory changes
 * them.
 */
export function using(program, args) {
  return ['flock', ['--shared', '--no-fork', ROOT, program, ...args]];
}

/** Runs a step that changes node_modules or dist, when nobody runs with them any more. */
function change(program, args) {
  const lock = (...how) => ['flock', ['--exclusive', ...how, ROOT, program, ...args]];
  const [flock, parts] = lock('--nonblock', '--conflict-exit-code', String(IN_USE));
  const { status, error } = spawnSync(flock, parts, { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error !== undefined) throw error;
  if (status === 0) return;
  if (status !== IN_USE) throw new Error(`${program} ${args.join(' ')} failed with status ${status}`);
  console.error(`${program} ${args.join(' ')}: waits until what runs with node_modules and dist here has ended`);
  step(...lock());
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
  if (!dependenciesAreInstalled()) change('npm', ['ci', '--no-audit', '--no-fund']);
  if (purpose === 'test' || purpose === 'bench') ensurePeers(peer);
  change('npm', ['run', '--silent', 'build']);
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
