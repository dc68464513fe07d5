/**
 * npm run quickstart [-- --once] [--rootless] [--built]: from a bare clone to running containers. Installs what is
 * missing, builds, starts a private daemon and a private registry on loopback, shows the nine basic operations of the
 * API through the daemon's socket, and leaves the daemon to the user until Ctrl-C, which takes everything away again.
 * With --once, or where nobody can press Ctrl-C, it ends by itself. With --rootless an ordinary user does it, without
 * any right of root. With --built it takes the build that is there, so that `node scripts/quickstart.mjs --built` needs
 * no npm.
 */
import { once } from 'node:events';
import { ensurePackages } from './ensure-packages.mjs';
import { command, prepare, step } from './prepare.mjs';
import { startInnerRegistry, startRootlessEngine } from './quickstart-rootless.mjs';

const API = '/v1.51';
const isAttended = !process.argv.includes('--once') && (process.stdin.isTTY || process.env.CI === undefined);
const isRootless = process.argv.includes('--rootless');
const isBuilt = process.argv.includes('--built');
const BAR_WIDTH = 30;

/** Modules of the build; they do not exist before it. */
async function built(name) {
  return import(new URL(`../dist/test/support/${name}.js`, import.meta.url).href);
}

function title(number, text) {
  console.log(`\n${process.stdout.isTTY ? `\u001b[1m${number}. ${text}\u001b[0m` : `${number}. ${text}`}`);
}

/** Prints what a user would type to do the same. */
function hint(method, path, json) {
  const body = json === undefined ? '' : ` -H 'Content-Type: application/json' -d '${JSON.stringify(json)}'`;
  console.log(
    `   curl --unix-socket $SOCKET${method === 'GET' ? '' : ` -X ${method}`}${body} 'http://localhost${path}'`,
  );
}

function bar({ current = 0, total = 0 }) {
  if (total === 0) return '';
  const full = Math.round((Math.min(current, total) / total) * BAR_WIDTH);
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  return `[${'='.repeat(full)}${' '.repeat(BAR_WIDTH - full)}] ${megabytes(current)}/${megabytes(total)} MB`;
}

/** Shows pull progress: on a terminal one line a layer, redrawn in place; elsewhere each new phase once. */
async function showProgress(messages) {
  const rows = new Map();
  for await (const { id, status, progressDetail = {}, error } of messages) {
    if (error !== undefined) throw new Error(error);
    const isLayer = id !== undefined && !status.startsWith('Pulling from');
    const line = isLayer
      ? `   ${id}: ${status} ${process.stdout.isTTY ? bar(progressDetail) : ''}`.trimEnd()
      : `   ${status}`;
    if (isLayer && process.stdout.isTTY && rows.has(id)) {
      const up = rows.size - rows.get(id);
      process.stdout.write(`\u001b[${up}A\r\u001b[2K${line}\u001b[${up}B\r`);
    } else if (!isLayer || process.stdout.isTTY || rows.get(id) !== status) {
      console.log(line);
    }
    if (isLayer) rows.set(id, process.stdout.isTTY ? (rows.get(id) ?? rows.size) : status);
  }
}

/** The text of a log stream: each piece has a header of eight bytes, whose last four are its length. */
function logText(bytes) {
  let text = '';
  for (let at = 0; at < bytes.length;) {
    const length = bytes.readUInt32BE(at + 4);
    text += bytes.toString('utf8', at + 8, at + 8 + length);
    at += 8 + length;
  }
  return text;
}

/** Prints an API answer short enough for a terminal. */
function show(value) {
  const text = JSON.stringify(value);
  console.log(`   -> ${text.length > 160 ? `${text.slice(0, 157)}...` : text}`);
}

async function nineOperations(socketPath, image) {
  const { callJson, call, jsonLines, open } = await built('http');
  const ask = async (method, path, json) => {
    hint(method, API + path, json);
    return callJson(socketPath, method, API + path, json === undefined ? {} : { json });
  };

  title(1, 'Pull an image');
  hint('POST', `${API}/images/create?fromImage=${image}`);
  const pull = await open(socketPath, 'POST', `${API}/images/create?fromImage=${image}`);
  await showProgress(jsonLines(pull.message));

  title(2, 'List the images');
  const images = await ask('GET', '/images/json');
  show(images.map(({ Id, RepoTags, Size }) => ({ Id, RepoTags, Size })));

  title(3, 'Create a container');
  const hello = await ask('POST', '/containers/create', {
    Image: image,
    Cmd: ['sh', '-c', 'echo hello world; echo made here > /made'],
  });
  show(hello);

  title(4, 'Start it');
  await ask('POST', `/containers/${hello.Id.slice(0, 12)}/start`);

  title(5, 'Wait for its end');
  show(await ask('POST', `/containers/${hello.Id.slice(0, 12)}/wait`));

  title(6, 'Read its log');
  const logs = `${API}/containers/${hello.Id.slice(0, 12)}/logs?stdout=1`;
  hint('GET', logs);
  console.log(`   -> ${logText((await call(socketPath, 'GET', logs)).body).trim()}`);

  title(7, 'List the running containers');
  const sleeper = await ask('POST', '/containers/create', { Image: image, Cmd: ['sleep', '1000'] });
  await ask('POST', `/containers/${sleeper.Id.slice(0, 12)}/start`);
  const running = await ask('GET', '/containers/json');
  show(running.map(({ Id, Names, Image, Status }) => ({ Id: Id.slice(0, 12), Names, Image, Status })));

  title(8, 'Stop a container');
  await ask('POST', `/containers/${sleeper.Id.slice(0, 12)}/stop?t=0`);
  show(await ask('GET', '/containers/json'));

  title(9, 'Commit a container to an image');
  show(await ask('POST', `/commit?container=${hello.Id.slice(0, 12)}&repo=helloworld`));
}

async function startEngine() {
  if (isRootless) return startRootlessEngine();
  const [{ Engine }, { engined }] = [await built('engine'), await built('engined')];
  return Engine.start(engined());
}

/** Runs until `signal` is aborted or the work is done; then everything that was started is gone again. */
async function quickstart(signal) {
  const { Cleanup } = await built('cleanup');
  const { buildImage, buildLayer, busyboxEntries, generatedLayer, pushImage } = await built('image-builder');
  const cleanup = new Cleanup();
  try {
    const engine = await startEngine();
    cleanup.add(() => engine.close());
    const registry = isRootless ? await startInnerRegistry(engine) : await (await built('registry')).startRegistry();
    cleanup.add(() => registry.stop());
    console.log(`registry: ${registry.url}`);
    // The second layer is there to be watched while it comes.
    const layers = [
      buildLayer(busyboxEntries()),
      generatedLayer({ root: 'srv', bytes: 16_000_000, files: 200, seed: 1 }),
    ];
    await pushImage(registry.url, 'quickstart/busybox', 'latest', buildImage({ layers }));
    signal.throwIfAborted();

    console.log(`daemon: process ${engine.pid}, files in ${engine.dir}\n\nSOCKET=${engine.socketPath}`);
    const image = `${registry.host}/quickstart/busybox:latest`;
    await nineOperations(engine.socketPath, image);
    signal.throwIfAborted();
    if (!isAttended) return;

    console.log(`\nThe daemon runs until Ctrl-C. In another terminal, point a docker CLI at it:\n`);
    console.log(`export DOCKER_HOST=${engine.host}\n`);
    console.log(`   docker run --rm ${image} echo hi`);
    console.log(`   curl --unix-socket ${engine.socketPath} http://localhost${API}/containers/json?all=1\n`);
    await once(signal, 'abort');
  } finally {
    console.log('\ncleaning up');
    await cleanup.run();
  }
}

await command('npm run quickstart', async () => {
  const isRoot = process.getuid() === 0;
  if (isRootless && isRoot) throw new Error('--rootless is for ordinary users: run it as one');
  if (!isRootless && !isRoot) throw new Error('containers need root: run it as root, or with -- --rootless');
  if (isRootless) step('packaging/engined-rootless', ['--check']);
  (isBuilt ? ensurePackages : prepare)(isRootless ? 'rootless' : 'quickstart');
  const ended = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => ended.abort());
  await quickstart(ended.signal).catch((error) => {
    if (!ended.signal.aborted) throw error;
  });
});
