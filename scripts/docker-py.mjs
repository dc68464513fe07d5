/**
 * npm run docker-py -- --source DIRECTORY [--storage-driver NAME] [--tests NAME,...] [--peer VERSION]: runs the tests
 * of the Python client docker-py against dockerd and against this engine, one after the other, each in a sandbox of its
 * own, and prints what came of them side by side. They are files of its tests/integration, by default those of images.
 * The directory is a checkout of its repository: what Debian and PyPI have leaves the tests out. Ends with status 1
 * when a test fails with this engine that passes with dockerd.
 */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { apt } from './ensure-packages.mjs';
import { peerOf } from './peers.mjs';
import { command, prepare } from './prepare.mjs';
import { runSideBySide } from './side-by-side.mjs';

const IMAGE_TESTS = 'api_image_test,models_images_test,api_build_test';
const DRIVERS = ['overlay2', 'btrfs', 'fuse-overlayfs', 'snapshotter'];
/** Modules of Python that the tests import, and Debian's packages of them. */
const MODULES = { pytest: 'python3-pytest', requests: 'python3-requests', paramiko: 'python3-paramiko' };
/** Two of the tests count lines of a build's output without waiting for its end. */
const TOO_EARLY = /where 1 = len\(\[b''\]\)/;
const MODULE_PLACE = '/usr/lib/python3/dist-packages';

function readArguments() {
  const { rest } = peerOf(process.argv.slice(2));
  const text = { type: 'string' };
  const { values } = parseArgs({
    args: rest,
    options: { source: text, 'storage-driver': text, tests: { ...text, default: IMAGE_TESTS } },
  });
  const { 'storage-driver': driver = 'overlay2', tests } = values;
  if (!DRIVERS.includes(driver)) throw new Error(`--storage-driver ${driver} is none of ${DRIVERS.join(', ')}`);
  return { source: placeOf(values.source, tests.split(',')), driver, tests: tests.split(',') };
}

/** Returns the directory of docker-py with the tests in it. */
function placeOf(source, tests) {
  if (source === undefined)
    throw new Error('--source names a checkout of docker-py (https://github.com/docker/docker-py, tag 7.1.0)');
  const directory = resolve(source);
  for (const part of ['docker/__init__.py', ...tests.map((name) => `tests/integration/${name}.py`)])
    if (!existsSync(join(directory, part))) throw new Error(`${directory} has no ${part}`);
  return directory;
}

function installModules() {
  const missing = Object.entries(MODULES).filter(([name]) => !existsSync(join(MODULE_PLACE, name)));
  if (missing.length > 0) apt(['install', '--no-install-recommends', ...missing.map(([, name]) => name)]);
}

await command('npm run docker-py', async () => {
  if (process.getuid() !== 0) throw new Error('the tests run real containers: run them as root');
  const { source, driver, tests } = readArguments();
  prepare('test', process.env.ENGINE_PEER);
  installModules();
  await runSideBySide({
    program: 'docker-py',
    args: [source, driver, ...tests],
    onBtrfs: driver === 'btrfs',
    partOf: (name) => name.split(' › ')[0],
    isChance: (message) => TOO_EARLY.test(message),
    // They are timed, and disturb each other.
    turns: true,
  });
});
