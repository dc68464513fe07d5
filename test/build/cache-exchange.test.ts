/** Caches that travel: what one engine has built, another one that knows nothing of it does not build again. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { startRegistryGate } from '../support/registry-gate.js';
import { waitFor } from '../support/wait.js';

const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'cache-exchange-'));
let registry: TestRegistry;
let first: Engine;
let second: Engine;
let one: Buildx;
let other: Buildx;
let base: string;

/** Each run makes other files, so an equal result has not been made again. */
const RANDOM = 'od -An -tx1 -N16 /dev/urandom';

before(async () => {
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  const { engine, image } = await startEngineWithImage(cleanup);
  first = engine;
  second = await Engine.start(engined());
  cleanup.add(() => second.close());
  base = `${registry.host}/team/base:1`;
  await engineOk(first, ['tag', image, base]);
  await engineOk(first, ['push', base]);
  one = new Buildx(join(directory, 'one'), first.host);
  other = new Buildx(join(directory, 'other'), second.host);
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

function write(lines: readonly string[], files: Readonly<Record<string, string>> = {}): void {
  for (const buildx of [one, other]) {
    buildx.write('a/Dockerfile', [`FROM ${base}`, ...lines].join('\n'));
    for (const [name, content] of Object.entries(files)) buildx.write(`a/${name}`, content);
  }
}

/** Builds `a` and returns what was shown. */
async function build(buildx: Buildx, ...args: readonly string[]): Promise<string> {
  return (await buildx.ok(['build', ...args, '.'], { in: 'a' })).stderr;
}

/** Takes from the second engine all that it knows of builds. */
const prune = (): Promise<unknown> => callJson(second.socketPath, 'POST', '/build/prune?all=1');

/** Counts the steps after the first one that were not done. */
function cached(shown: string): number {
  const steps = shown.matchAll(/^#(\d+) \[[^\]]*\d+\/\d+\] (?!FROM)/gm);
  return new Set([...steps].flatMap(([, id]) => (shown.includes(`\n#${id} CACHED\n`) ? [id] : []))).size;
}

interface InspectedImage {
  readonly Id: string;
  readonly RootFS: { readonly Layers: readonly string[] };
}

function inspect(engine: Engine, name: string): Promise<InspectedImage> {
  return callJson<InspectedImage>(engine.socketPath, 'GET', `/images/${encodeURIComponent(name)}/json`);
}

async function layersOf(engine: Engine, name: string): Promise<readonly string[]> {
  return (await inspect(engine, name)).RootFS.Layers;
}

async function idOf(engine: Engine, name: string): Promise<string> {
  return (await inspect(engine, name)).Id;
}

describe('a cache that travels', { skip }, () => {
  const steps = ['WORKDIR /w', 'COPY f .', `RUN ${RANDOM} > r`, 'RUN true'];

  test('in an image that is pushed: nothing is built again, and a change builds what is after it', async () => {
    write([...steps, 'CMD ["x"]'], { f: 'content' });
    const name = `${registry.host}/team/inline:1`;
    await build(one, '--cache-to', 'type=inline', '--push', '-t', name);
    const again = await build(other, '--cache-from', name, '-t', 'inline:1');
    assert.match(again, new RegExp(`importing cache manifest from ${name}\n`));
    assert.equal(cached(again), 4, again);
    const layers = await layersOf(first, name);
    assert.deepEqual(await layersOf(second, 'inline:1'), layers);
    write([...steps, `RUN ${RANDOM} > s`]);
    await prune();
    const changed = await build(other, '--cache-from', `type=registry,ref=${name}`, '-t', 'inline:2');
    assert.equal(cached(changed), 4, changed);
    assert.deepEqual((await layersOf(second, 'inline:2')).slice(0, layers.length), layers);
    write(steps, { f: 'another content' });
    const fresh = await build(other, '--cache-from', name, '--build-arg', 'BUILDKIT_INLINE_CACHE=1', '-t', 'inline:3');
    assert.equal(cached(fresh), 1, 'only what is before the change');
  });

  test('in an image that is here, which the registry does not know', async () => {
    // The build before has left it there.
    await prune();
    const again = await build(other, '--cache-from', 'inline:3', '-t', 'inline:4');
    assert.equal(cached(again), 4, again);
    assert.deepEqual(await layersOf(second, 'inline:4'), await layersOf(second, 'inline:3'));
    const none = await build(other, '--cache-from', 'inline:3', '--no-cache', '-t', 'inline:5');
    assert.equal(cached(none), 0);
  });

  test('to a registry: with mode=max the steps of other stages, too, in both forms of manifests', async () => {
    const stages = [`RUN ${RANDOM} > /r`, 'RUN cp /r /s', `FROM ${base}`, 'COPY --from=built /s /t'];
    for (const form of ['', ',image-manifest=false']) {
      const ref = `${registry.host}/team/max:${form.length}`;
      const dockerfile = [`FROM ${base} AS built`, `ENV FORM="${form}"`, ...stages].join('\n');
      for (const buildx of [one, other]) buildx.write('a/Dockerfile', dockerfile);
      const shown = await build(one, '--cache-to', `type=registry,mode=max,ref=${ref}${form}`, '-t', 'max:1');
      assert.match(shown, /exporting cache to registry\n/);
      assert.match(shown, /writing cache image manifest sha256:[0-9a-f]{64} [\d.s ]*done/);
      const again = await build(other, '--cache-from', `type=registry,ref=${ref}`, '-t', 'max:1');
      assert.equal(cached(again), 3, again);
      assert.deepEqual(await layersOf(second, 'max:1'), await layersOf(first, 'max:1'));
      assert.equal(await idOf(second, 'max:1'), await idOf(first, 'max:1'), 'the times of steps come with the cache');
    }
  });

  test('to a registry with mode=min; what cannot be written fails the build, or is only told', async () => {
    const ref = `${registry.host}/team/min:1`;
    write(steps, { f: 'of min' });
    await build(one, '--cache-to', `type=registry,ref=${ref}`, '-o', 'type=cacheonly');
    assert.equal(cached(await build(other, '--cache-from', ref)), 4);
    const nowhere = 'type=registry,ref=127.0.0.1:1/no:1';
    const failed = await one.run(['build', '--cache-to', nowhere, '.'], { in: 'a' });
    assert.notEqual(failed.status, 0);
    assert.match(failed.stderr, /exporting cache to registry:$/m);
    assert.match(await build(one, '--cache-to', `${nowhere},ignore-error=true`), /exporting cache to registry:$/m);
  });

  test('to a registry in other compressions, and no more layers come at a time than the limit says', async (t) => {
    const gate = await startRegistryGate(registry);
    t.after(() => gate.stop());
    const settings = join(second.dir, 'daemon.json');
    const set = async (content: object): Promise<void> => {
      writeFileSync(settings, JSON.stringify(content));
      await callJson(second.socketPath, 'POST', '/engine/config/reload');
    };
    await set({ 'max-concurrent-downloads': 2 });
    t.after(() => set({}));
    const stages = ['one', 'two', 'three', 'four'];
    const taken = stages.map((name) => `COPY --from=${name} /${name} /`);
    for (const [form, type] of [
      ['compression=uncompressed', /\.tar$/],
      ['compression=gzip,compression-level=1,force-compression=true', /\.tar\+gzip$/],
    ] as const) {
      const made = stages.map((name) => `FROM ${base} AS ${name}\nENV FORM="${form}"\nCOPY ${name} /`);
      const dockerfile = [...made, `FROM ${base}`, ...taken].join('\n');
      const files = stages.map((name): [string, string] => [name, randomBytes(16).toString('hex')]);
      for (const buildx of [one, other])
        for (const [name, content] of [...files, ['Dockerfile', dockerfile] as const])
          buildx.write(`a/${name}`, content);
      const ref = `${registry.host}/team/form:1`;
      await build(one, '--cache-to', `type=registry,mode=max,ref=${ref},${form}`, '-t', 'form:1');
      const accept = 'application/vnd.oci.image.manifest.v1+json';
      const answer = await fetch(`${registry.url}/v2/team/form/manifests/1`, { headers: { accept } });
      const { layers } = (await answer.json()) as { layers: { mediaType: string; digest: string }[] };
      for (const { mediaType } of layers) assert.match(mediaType, type);
      const ours = new Set(layers.map(({ digest }) => `/v2/team/form/blobs/${digest}`));
      let [open, most] = [0, 0];
      const held: (() => void)[] = [];
      gate.guard = ({ method, url = '' }, response, forward) => {
        if (method !== 'GET' || !ours.has(url)) return 'passes';
        most = Math.max(most, ++open);
        response.once('close', () => open--);
        held.push(forward);
        return 'taken';
      };
      const built = build(other, '--cache-from', `${gate.host}/team/form:1`, '-t', 'form:1');
      try {
        await waitFor(
          () => `two layers at a time: ${open} of ${held.length}`,
          () => open === 2,
        );
        // While the first one is held, those of the other stages end: the limit would be passed by now.
        for (let at = 1; at < stages.length; at++) {
          await waitFor('the next one', () => held.length > at);
          held[at]?.();
        }
        gate.guard = () => 'passes';
        held[0]?.();
        assert.equal(cached(await built), 8);
        assert.equal(most, 2);
        assert.deepEqual(await layersOf(second, 'form:1'), await layersOf(first, 'form:1'));
      } finally {
        gate.guard = () => 'passes';
        for (const forward of held) forward();
        await built.catch(() => undefined);
      }
    }
  });

  test('in a directory of the client, in each compression', async () => {
    for (const form of ['', ',compression=uncompressed,image-manifest=false,mode=max']) {
      write([`ENV FORM="${form}"`, `RUN ${RANDOM} > /r`, 'RUN head -c 1200000 /dev/urandom > /large']);
      const at = join(directory, `local${form.length}`);
      const shown = await build(one, '--cache-to', `type=local,dest=${at}${form}`, '-t', 'local:1');
      assert.match(shown, /exporting cache to client directory\n/);
      const again = await build(other, '--cache-from', `type=local,src=${at}`, '-t', 'local:1');
      assert.match(again, /importing cache manifest from local:/);
      assert.equal(cached(again), 2, again);
      assert.deepEqual(await layersOf(second, 'local:1'), await layersOf(first, 'local:1'));
      // A second export finds the blobs there.
      await build(one, '--cache-to', `type=local,dest=${at}${form}`);
      await engineOk(second, ['rmi', 'local:1']);
      await prune();
      const blobs = join(at, 'blobs/sha256');
      for (const name of readdirSync(blobs))
        if (statSync(join(blobs, name)).size > 1_000_000) writeFileSync(join(blobs, name), 'damaged');
      const damaged = await build(other, '--cache-from', `type=local,src=${at}`, '-t', 'local:1');
      assert.equal(cached(damaged), 1, 'what is damaged is made anew');
    }
  });

  test('nothing travels, and with SOURCE_DATE_EPOCH the images are equal all the same', async () => {
    write(['RUN mkdir /d && echo made > /d/f', 'COPY f /f', 'WORKDIR /w'], { f: 'dated' });
    const epoch = { in: 'a', env: { SOURCE_DATE_EPOCH: '1700000000' } };
    const ids = new Set<string>();
    for (const buildx of [one, other, one]) {
      const name = `${registry.host}/team/dated:1`;
      const output = `type=image,name=${name},rewrite-timestamp=true,push=true`;
      const { stderr } = await buildx.ok(['build', '--no-cache', '-o', output, '.'], epoch);
      assert.equal(cached(stderr), 0);
      ids.add(/writing image (\S+)/.exec(stderr)?.[1] ?? '');
      ids.add(/pushing manifest for \S+@(\S+)/.exec(stderr)?.[1] ?? '');
    }
    assert.equal(ids.size, 2, [...ids].join(' '));
    const dated = `${registry.host}/team/dated:1`;
    const times = await engineOk(second, ['run', '--rm', dated, 'stat', '-c', '%Y', '/d/f', '/w']);
    assert.equal(times, '1700000000\n1700000000');
    const baseLayers = (await layersOf(first, base)).length;
    assert.deepEqual(
      (await layersOf(first, `${registry.host}/team/dated:1`)).slice(0, baseLayers),
      await layersOf(first, base),
    );
  });

  test('a cache that cannot be had is told, and the build goes on', async () => {
    write([`RUN ${RANDOM} > /r`]);
    const missing = `${registry.host}/team/nothing:1`;
    const shown = await build(other, '--cache-from', missing, '--cache-from', base, '-t', 'missing:1');
    assert.match(shown, new RegExp(`importing cache manifest from ${missing}:$`, 'm'));
    assert.match(shown, /ERROR: failed to configure registry cache importer: .*: not found$/m);
    const sources = ['type=registry,ref=No/Such:Name!', 'type=moon,name=one', 'type=moon,name=two'];
    const unusable = await build(other, ...sources.flatMap((source) => ['--cache-from', source]));
    assert.match(unusable, /ERROR: failed to configure registry cache importer: .*invalid reference format/m);
    assert.match(unusable, /ERROR: unknown cache importer: moon$/m);
    assert.equal(unusable.match(/importing cache manifest from moon:\d+$/gm)?.length, 2, unusable);
  });
});
