/**
 * The driver zfs beside dockerd's, on one pool and with the same containerd and runc, by turns: `ZFS_ROUNDS=5 npm run
 * test:vm -- zfs-speed` prints times and ratios. All is emulated, so the image is smaller than that of the bench.
 */
import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { buildImage, buildLayer, busyboxEntries, generatedLayer, pushImage } from '../support/image-builder.js';
import { systemctl, waitLong } from '../support/machine.js';
import { pullOk } from '../support/pulls.js';
import { startRegistry } from '../support/registry.js';
import { hasZfs, run, ZfsPool } from '../support/zfs-pool.js';

const ROUNDS = Number(process.env['ZFS_ROUNDS'] ?? 0);
/** Debian's newest dockerd with this driver. It needs one library that the machine lacks. */
const PEER = fileURLToPath(new URL('../../../node_modules/.cache/dockerd-20.10/usr', import.meta.url));
const DOCKERD = join(PEER, 'sbin/dockerd');
const LIBRARY = 'lib/x86_64-linux-gnu/libdevmapper.so.1.02.1';
const skip = ROUNDS > 0 && existsSync(DOCKERD) && hasZfs() ? false : 'ZFS_ROUNDS=5 npm run test:vm -- zfs-speed';
const LIVES = 2;
const POOL = 'speed';

/** Both have their control groups where this driver puts them: systemd would not know the groups of the tests. */
const COMMON = ['--storage-driver=zfs', '--exec-opt=native.cgroupdriver=cgroupfs'];

/** It has no network of containers, because the firewall of the machine is for one engine. */
const peer: EngineKind = {
  name: 'dockerd',
  isTidy: false,
  mark: 'docker',
  command(dir, socketPath) {
    mkdirSync(dir, { recursive: true });
    const paths = { 'data-root': 'data', 'exec-root': 'exec', pidfile: 'docker.pid' };
    const alone = ['--bridge=none', '--iptables=false', '--ip6tables=false', '--userland-proxy=false'];
    return [
      DOCKERD,
      `--host=unix://${socketPath}`,
      ...COMMON,
      ...alone,
      ...Object.entries(paths).flatMap(([flag, name]) => [`--${flag}`, join(dir, name)]),
    ];
  },
};

const cleanup = new Cleanup();
const engines: Engine[] = [];
let reference = '';

before(async () => {
  if (skip !== false) return;
  await systemctl('stop', 'engined.socket', 'engined.service');
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  const generated = Array.from({ length: 9 }, (_, seed) =>
    generatedLayer({ root: `srv-${seed}`, bytes: 1 << 19, files: 25, seed }),
  );
  const image = buildImage({ layers: [buildLayer(busyboxEntries()), ...generated] });
  await pushImage(registry.url, 'speed', '1', image);
  reference = `${registry.host}/speed:1`;
  // The children of dockerd do not have its environment.
  copyFileSync(join(PEER, LIBRARY), join('/usr', LIBRARY));
  const pool = new ZfsPool(POOL, '4G');
  process.env['TMPDIR'] = pool.path;
  for (const kind of [engined({ args: COMMON }), peer]) {
    const engine = await Engine.start(kind);
    cleanup.add(() => engine.discard());
    engines.push(engine);
  }
});
after(() => cleanup.run());

/** Waits until what was removed is gone from the pool: one engine says so before. */
async function settled(count: number): Promise<void> {
  await waitLong('the datasets to be gone', async () => datasets() === count);
  run('zpool', 'sync', POOL);
}
const datasets = (): number => run('zfs', 'list', '-H', '-r', '-o', 'name', POOL).split('\n').length;

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return Math.round(performance.now() - began);
}

async function life({ socketPath }: Engine): Promise<void> {
  const json = { Image: reference, Cmd: ['true'], HostConfig: { NetworkMode: 'none' } };
  const { Id } = await callJson<{ Id: string }>(socketPath, 'POST', '/containers/create', { json });
  await callJson(socketPath, 'POST', `/containers/${Id}/start`);
  await callJson(socketPath, 'POST', `/containers/${Id}/wait`);
  await callJson(socketPath, 'DELETE', `/containers/${Id}?force=1`);
}

/** Milliseconds of a pull, and of each of some lives. */
async function round(engine: Engine): Promise<readonly number[]> {
  const before = datasets();
  const times = [await timed(() => pullOk(engine, reference))];
  const pulled = datasets();
  for (let index = 0; index < LIVES; index++) {
    times.push(await timed(() => life(engine)));
    await settled(pulled);
  }
  await callJson(engine.socketPath, 'DELETE', `/images/${reference}`);
  await settled(before);
  return times;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}

describe('beside dockerd', { skip }, () => {
  test('pulls and lives take a part of the time', async (context) => {
    // The first ones of each engine do what is done once, and are not counted.
    for (const engine of engines) await round(engine);
    const [pulls, lives] = [new Map<string, number[]>(), new Map<string, number[]>()];
    for (let index = 0; index < ROUNDS; index++)
      for (const engine of index % 2 === 0 ? engines : engines.toReversed()) {
        const [pull = 0, ...rest] = await round(engine);
        console.log(`${engine.name}: a pull ${pull} ms, lives ${rest.join(' ')} ms`);
        pulls.set(engine.name, [...(pulls.get(engine.name) ?? []), pull]);
        lives.set(engine.name, [...(lives.get(engine.name) ?? []), ...rest]);
      }
    for (const [what, times] of Object.entries({ pulls, lives })) {
      const [ours = [], theirs = []] = [times.get('engined'), times.get('dockerd')];
      const ratio = (median(ours) / median(theirs)).toFixed(2);
      context.diagnostic(`${what}: engined ${ours.join(' ')} ms, dockerd ${theirs.join(' ')} ms: ${ratio}x`);
    }
  });
});
