/** Changes of images and containers of all kinds, which a test begins and whose daemon it kills in the middle. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { SeededRegistry } from './busybox-image.js';
import { Buildx } from './buildx.js';
import { docker } from './cli.js';
import { attempt, engineOk } from './engine-commands.js';
import type { Engine } from './engine.js';
import { call, callJson } from './http.js';
import { archiveOf, indexLayout, load, oldArchive } from './image-archives.js';
import { buildImage, buildIndex, generatedLayer, pushImage, pushManifest, tarOf } from './image-builder.js';
import { pull } from './pulls.js';

/** Builds of images for two platforms, each of which is another one. */
class PlatformBuilds {
  readonly #buildx: Buildx;
  #count = 0;

  constructor(private readonly engine: Engine) {
    this.#buildx = new Buildx(join(engine.dir, 'builds'), engine.host);
    const text = 'FROM scratch\nLABEL built=here\nARG OF\nLABEL of=$OF\nARG TARGETARCH\nCOPY $TARGETARCH /file\n';
    this.#buildx.write('a/Dockerfile', text);
    for (const arch of ['amd64', 'arm64']) this.#buildx.write(`a/${arch}`, arch.repeat(100_000));
  }

  build(): Promise<unknown> {
    const which = ['--platform', 'linux/amd64,linux/arm64', '--build-arg', `OF=${(this.#count += 1)}`];
    return this.#buildx.run(['build', ...which, '--provenance=mode=min', '-t', 'built:1', '.'], { in: 'a' });
  }

  /** Checks that each of them is here for both. */
  async allWhole(): Promise<void> {
    type Listed = {
      readonly Labels: Readonly<Record<string, string>> | null;
      readonly Manifests?: readonly { readonly Available: boolean }[];
    };
    const list = await callJson<Listed[]>(this.engine.socketPath, 'GET', '/images/json?manifests=1&all=1');
    for (const { Labels, Manifests = [] } of list.filter((image) => image.Labels?.['built'] === 'here'))
      assert.ok(Manifests.length === 4 && Manifests.every(({ Available }) => Available), JSON.stringify(Labels));
  }
}

const filters = (json: object): string => `filters=${encodeURIComponent(JSON.stringify(json))}`;
/** Unlike those of images and of the build cache, a prune of containers would take what a test wants to keep. */
const LABEL = 'churn';
export const PRUNE_IMAGES = `/images/prune?${filters({ dangling: ['false'] })}`;
const PRUNE_CONTAINERS = `/containers/prune?${filters({ label: [LABEL] })}`;

type Change = readonly [name: string, begin: () => Promise<unknown>];

export class Churn {
  /** How often a change of each name was under way when the daemon was killed. */
  readonly killed = new Map<string, number>();
  readonly #running = new Map<Promise<unknown>, string>();

  private constructor(
    private readonly engine: Engine,
    private readonly changes: readonly Change[],
    readonly builds: PlatformBuilds,
  ) {}

  /** @param isOfPlatforms: several platforms can be built, because the images of an index are one. */
  static async prepare(engine: Engine, registry: SeededRegistry, isOfPlatforms: boolean): Promise<Churn> {
    const builds = new PlatformBuilds(engine);
    const ofPlatforms: readonly Change[] = isOfPlatforms ? [['build', () => builds.build()]] : [];
    const changes = [...ofPlatforms, ...(await imageChanges(engine, registry)), ...containerChanges(engine, registry)];
    return new Churn(engine, changes, builds);
  }

  /** Begins one of the changes, whatever becomes of it. */
  begin(random: (below: number) => number): void {
    const change = this.changes[random(this.changes.length)];
    if (!change) return;
    const [name, begin] = change;
    const running = begin()
      .catch(() => undefined)
      .finally(() => this.#running.delete(running));
    this.#running.set(running, name);
  }

  /** Kills the daemon in the middle of what has begun. */
  async kill(): Promise<void> {
    for (const name of this.#running.values()) this.killed.set(name, (this.killed.get(name) ?? 0) + 1);
    const running = [...this.#running.keys()];
    await this.engine.stop('SIGKILL');
    await Promise.all(running);
  }

  /** Removes all containers but one, the images that no container has, and the build cache. */
  async removeAll(exceptContainer: string): Promise<void> {
    const containers = (await engineOk(this.engine, ['ps', '-aq', '--no-trunc'])).split('\n');
    const kept = await engineOk(this.engine, ['inspect', '--format', '{{.Id}}', exceptContainer]);
    for (const id of containers) if (id !== kept) await attempt(this.engine, ['rm', '-f', id]);
    await call(this.engine.socketPath, 'POST', PRUNE_IMAGES);
    await call(this.engine.socketPath, 'POST', '/build/prune?all=1');
  }
}

/** Returns changes of images, some of which come from the registry. The container `kept` is committed. */
async function imageChanges(engine: Engine, registry: SeededRegistry): Promise<readonly Change[]> {
  const image = buildImage({
    layers: [1, 2, 3].map((seed) => generatedLayer({ root: `r${seed}`, bytes: 2 << 20, files: 200, seed })),
    config: {},
  });
  const archive = archiveOf(oldArchive(image, ['churn:1']));
  const body = tarOf([{ path: 'f', content: Buffer.alloc(3 << 20, 1) }]);
  const other = buildImage({ layers: image.layers.slice(1), config: {}, architecture: 'arm64' });
  for (const one of [image, other]) await pushImage(registry.url, 'churn', one.platform.architecture, one);
  await pushManifest(registry.url, 'churn', '1', buildIndex([image, other]));
  const both = archiveOf(indexLayout([image, other], 'docker.io/library/churn:both'));
  const arm = encodeURIComponent(JSON.stringify(other.platform));
  const pulled = `${registry.host}/churn:1`;
  const headers = { 'Content-Type': 'application/x-tar' };
  const get = (path: string): Promise<unknown> => call(engine.socketPath, 'GET', path);
  const post = (path: string): Promise<unknown> => call(engine.socketPath, 'POST', path);
  return [
    ['load', () => load(engine, archive)],
    ['load', () => load(engine, both)],
    ['save', () => get('/images/get?names=churn:both')],
    ['pull', () => pull(engine, pulled)],
    ['pull', () => attempt(engine, ['pull', '--platform', 'linux/arm64', pulled])],
    ['remove platform', () => call(engine.socketPath, 'DELETE', `/images/${pulled}?force=1&platforms=${arm}`)],
    ['push', () => docker(engine, ['push', pulled])],
    ['save', () => get(`/images/get?names=${pulled}`)],
    ['commit', () => attempt(engine, ['commit', 'kept', 'committed:1'])],
    [
      'import',
      () => call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=imported&tag=1', { body, headers }),
    ],
    ['remove images', () => attempt(engine, ['rmi', '-f', 'churn:1', pulled, 'imported:1', 'committed:1'])],
    ['remove images', () => attempt(engine, ['rmi', '-f', 'churn:both', 'built:1'])],
    ['prune', () => post(PRUNE_IMAGES)],
    ['prune', () => Promise.all([PRUNE_IMAGES, PRUNE_CONTAINERS, '/build/prune?all=1'].map(post))],
  ];
}

function containerChanges(engine: Engine, { reference }: SeededRegistry): readonly Change[] {
  const write = ['sh', '-c', 'head -c 2000000 /dev/zero >/f'];
  const create = ['create', '--label', `${LABEL}=1`];
  return [
    ['run', () => attempt(engine, ['run', '--rm', '--network', 'none', reference, ...write])],
    ['create', () => attempt(engine, [...create, '--name', 'churn', reference])],
    ['create', () => attempt(engine, [...create, reference])],
    ['remove container', () => attempt(engine, ['rm', '-f', 'churn'])],
  ];
}
