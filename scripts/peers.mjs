/**
 * node scripts/peers.mjs: fetches the programs of others that tests and benches use beside ours, and unpacks them
 * without installing them, as an installation would start a daemon: the docker CLI of today, which Debian has in its
 * development suite only, and dockerd as the release of this machine has it. Plain Node.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { apt, findProgram, ROOT, run } from './ensure-packages.mjs';

/** `npm ci` empties it, so that what is there is never older than the dependencies. */
const CACHE = join(ROOT, 'node_modules', '.cache');
/** The CLI needs nothing but the C library of any Debian that is supported. */
const CLI_SUITE = 'sid';
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/** Unpacks the package that `download` puts into a directory to `name` below the cache. */
function unpack(name, download) {
  const target = join(CACHE, name);
  if (existsSync(target)) return;
  if (process.getuid?.() !== 0 || findProgram('apt-get') === undefined) {
    throw new Error(`${name} is missing; as root on Debian it would be unpacked from the package of that name`);
  }
  console.error(`unpacking ${name} (not installed)`);
  const fresh = `${target}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    download(fresh);
    const archive = readdirSync(fresh).find((file) => file.endsWith('.deb'));
    if (archive === undefined) throw new Error(`apt-get download left no package of ${name}`);
    run('dpkg-deb', ['-x', join(fresh, archive), join(fresh, 'root')]);
    renameSync(join(fresh, 'root'), target);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

/** Where this machine gets Debian's packages from. */
function mirror() {
  const args = ['indextargets', '--format', '$(REPO_URI) $(COMPONENT)', 'Created-By: Packages'];
  const lines = spawnSync('apt-get', args, { encoding: 'utf8' })
    .stdout.split('\n')
    .map((line) => line.split(' '));
  const uri = lines.find(([repository, component]) => component === 'main' && /\/debian\/?$/.test(repository))?.[0];
  if (uri === undefined)
    throw new Error('apt has no source of Debian: its sources name no address that ends in /debian');
  return uri;
}

/** A package of another suite, by lists of its own: those of the machine stay as they are. */
function downloadFromSuite(suite, name, directory) {
  for (const path of ['lists/partial', 'archives/partial']) mkdirSync(join(directory, path), { recursive: true });
  const sources = join(directory, 'sources.list');
  writeFileSync(sources, `deb [signed-by=${KEYRING}] ${mirror()} ${suite} main\n`);
  const options = [
    `Dir::Etc::sourcelist=${sources}`,
    'Dir::Etc::sourceparts=/dev/null',
    'Dir::Etc::preferencesparts=/dev/null',
    `Dir::State::lists=${join(directory, 'lists')}`,
    `Dir::Cache=${directory}`,
    'Acquire::Check-Valid-Until=false',
    'Acquire::Languages=none',
    'APT::Sandbox::User=root',
  ].flatMap((option) => ['-o', option]);
  for (const action of [['update'], ['download', name]])
    run('apt-get', ['-qq', ...options, ...action], { cwd: directory });
}

/** The unmodified docker CLI. Tests run the same one everywhere, whatever is on PATH. */
function ensureCli() {
  unpack('docker-cli', (directory) => downloadFromSuite(CLI_SUITE, 'docker-cli', directory));
}

/** Without the download sandbox of apt: its user may not write below a directory of root's. */
function ensureDockerd() {
  unpack('docker.io', (directory) =>
    apt(['-o', 'APT::Sandbox::User=root', 'download', 'docker.io'], { cwd: directory }),
  );
}

/** Throws an Error that says what is missing and why it could not be fetched. */
export function ensurePeers() {
  ensureCli();
  ensureDockerd();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    ensurePeers();
  } catch (error) {
    console.error(`peers: ${error.message}`);
    process.exitCode = 1;
  }
}
