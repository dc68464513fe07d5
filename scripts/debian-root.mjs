/**
 * Makes a directory with the base system of a Debian release, and runs programs that take it for their machine. Plain
 * Node.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const APT_SETTINGS = '/etc/apt/apt.conf.d';
/** Old snapshots of a release count as valid: what is tried is not how new the packages are. */
const APT = 'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n';

/** Files of this machine that a program needs to reach the network. */
function settings() {
  const npm = (name) => execFileSync('npm', ['config', 'get', name], { encoding: 'utf8', cwd: '/' }).trim();
  const certificates = ['NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE'].map((name) => process.env[name]);
  const own = existsSync(APT_SETTINGS) ? readdirSync(APT_SETTINGS).filter((name) => name.startsWith('99')) : [];
  return [
    '/etc/resolv.conf',
    '/etc/ssl/certs/ca-certificates.crt',
    npm('globalconfig'),
    npm('userconfig'),
    ...certificates,
    ...own.map((name) => join(APT_SETTINGS, name)),
  ].filter((path) => path !== undefined && existsSync(path));
}

/** Copies a file or directory, and what a link leads to instead of the link itself. */
export function copy(from, to) {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(realpathSync(from), to, { recursive: true, verbatimSymlinks: true });
}

/** The base system with certificates, and with what this machine needs to reach the network. Needs debootstrap. */
export function makeDebianRoot(release, root) {
  console.error(`making a root of ${release}`);
  // It reports on its output; the errors alone are of interest.
  execFileSync('debootstrap', ['--variant=minbase', '--include=ca-certificates', release, root], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  for (const path of settings()) copy(path, join(root, path));
  writeFileSync(join(root, APT_SETTINGS, '98-snapshot'), APT);
}
