/**
 * npm run image: engined builds an image of engined (packaging/Dockerfile) with the unmodified
 * client, runs it, and runs a container in that. With DOCKER_BUILDKIT=0 it is built through the classic door.
 *
 * Its base image, debian:trixie-slim, is made here by debootstrap with what this machine needs to reach Debian's and
 * npm's packages, so that no registry of images is asked. It all goes away again. Needs root and the network.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { makeDebianRoot } from './debian-root.mjs';
import { installPackages, ROOT } from './ensure-packages.mjs';
import { ensureCli } from './peers.mjs';
import { command, prepare } from './prepare.mjs';

const RELEASE = 'trixie';
const BASE = `debian:${RELEASE}-slim`;
const IMAGE = 'engined:own';

/** Modules of the build; they do not exist before it. */
async function built(name) {
  return import(new URL(`../dist/test/support/${name}.js`, import.meta.url).href);
}

/** Makes the base image of a directory, with the variable by which Node finds this machine's certificates. */
async function importBase(docker, directory) {
  const root = join(directory, 'root');
  makeDebianRoot(RELEASE, root);
  const archive = join(directory, 'root.tar');
  execFileSync('tar', ['-C', root, '--exclude=./var/cache/apt/archives/*.deb', '-cf', archive, '.']);
  const certificates = process.env.NODE_EXTRA_CA_CERTS;
  const changes = certificates === undefined ? [] : ['--change', `ENV NODE_EXTRA_CA_CERTS=${certificates}`];
  await docker(['import', ...changes, archive, BASE]);
  rmSync(root, { recursive: true, force: true });
}

/** Runs the client for `engine` with the terminal of this process, until `ended` aborts. */
function client(engine, { dockerCli, buildxPlugins }, { Buildx }, ended) {
  const { directory } = new Buildx(join(engine.dir, 'client'), engine.host);
  if (buildxPlugins() === undefined) throw new Error('buildx is missing');
  const env = { ...process.env, DOCKER_HOST: engine.host, DOCKER_CONFIG: join(directory, 'cli') };
  return async (args) => {
    // The handler of a signal that came while a program was waited for runs now.
    await nextTurn();
    ended.throwIfAborted();
    console.error(`docker ${args.join(' ')}`);
    const child = spawn(dockerCli(), args, { cwd: ROOT, env, stdio: ['ignore', 'inherit', 'inherit'] });
    const end = () => child.kill('SIGINT');
    ended.addEventListener('abort', end);
    const [code, signal] = await once(child, 'exit').finally(() => ended.removeEventListener('abort', end));
    if (code !== 0) throw new Error(`docker ${args[0]} failed with ${signal ?? `status ${code}`}`);
  };
}

/** Runs the new image, and a container of busybox in it. Throws where that container does not say what it should. */
function runContainerIn(engine, { dockerCli }, busybox) {
  const docker = (args, options = {}) => {
    const { status, stdout, stderr } = spawnSync(dockerCli(), args, {
      encoding: 'utf8',
      env: { ...process.env, DOCKER_HOST: engine.host },
      ...options,
    });
    if (status !== 0) throw new Error(`docker ${args.join(' ')}: ${stderr}${stdout}`);
    return stdout.trim();
  };
  const sockets = join(engine.dir, 'inner');
  docker([
    'run',
    '-d',
    '--privileged',
    '--name',
    'inner',
    '-v',
    `${sockets}:/sockets`,
    IMAGE,
    '-H',
    'unix:///sockets/s',
  ]);
  const inner = { env: { ...process.env, DOCKER_HOST: `unix://${sockets}/s` } };
  try {
    for (let tries = 0; ; tries++) {
      const { status } = spawnSync(dockerCli(), ['version'], inner);
      if (status === 0) break;
      if (tries === 100 || docker(['ps', '-qf', 'name=inner']) === '') throw new Error('the engine does not answer');
      spawnSync('sleep', ['0.2']);
    }
    docker(['import', busybox, 'busybox'], inner);
    const said = docker(['run', '--rm', 'busybox', 'echo', 'a container in a container'], inner);
    if (said !== 'a container in a container') throw new Error(`it said: ${said}`);
    console.log(said);
  } catch (error) {
    spawnSync(dockerCli(), ['logs', 'inner'], {
      env: { ...process.env, DOCKER_HOST: engine.host },
      stdio: ['ignore', 2, 2],
    });
    throw error;
  } finally {
    docker(['rm', '-fv', 'inner']);
  }
}

async function image() {
  const [{ Cleanup }, { Engine }, { engined }, programs, clients, images] = await Promise.all(
    ['cleanup', 'engine', 'engined', 'dockerd', 'buildx', 'image-builder'].map(built),
  );
  const cleanup = new Cleanup();
  // Everything is put away also when this is interrupted.
  const ended = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'])
    process.on(name, () => ended.abort(new Error(`ended by ${name}`)));
  const directory = mkdtempSync('/var/tmp/engined-image-');
  cleanup.add(async () => rmSync(directory, { recursive: true, force: true }));
  try {
    const engine = await Engine.start(engined());
    cleanup.add(() => engine.close());
    const docker = client(engine, programs, clients, ended.signal);
    await importBase(docker, directory);
    const progress = process.env.DOCKER_BUILDKIT === '0' ? [] : ['--progress=plain'];
    await docker(['build', ...progress, '-f', 'packaging/Dockerfile', '-t', IMAGE, '.']);
    await docker(['images', IMAGE]);
    const busybox = join(directory, 'busybox.tar');
    writeFileSync(busybox, images.tarOf(images.busyboxEntries()));
    runContainerIn(engine, programs, busybox);
  } finally {
    await cleanup.run();
  }
}

await command('npm run image', async () => {
  if (process.getuid() !== 0) throw new Error('containers need root: run it as root');
  prepare('quickstart');
  installPackages({ debootstrap: 'debootstrap' });
  ensureCli();
  await image();
});
