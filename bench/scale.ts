/**
 * `npm run bench -- --scale`: what many containers and images cost that are only there. Their records are made, not
 * run: a tenth of the largest numbers first, then these, so that a cost that grows faster than the number is seen.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { dockerOk } from '../test/support/cli.js';
import { Engine } from '../test/support/engine.js';
import { engined } from '../test/support/engined.js';
import { call } from '../test/support/http.js';
import { createContainer, removeContainer } from './containers.js';
import { median, timed } from './measure.js';
import { processMs } from './processor-time.js';
import { residentBytes } from './resident-memory.js';

const SIZES = [
  { containers: 1000, images: 10_000 },
  { containers: 10_000, images: 100_000 },
] as const;
const TIMES = 5;

interface Stored {
  readonly version: number;
  readonly value: Readonly<Record<string, unknown>>;
}

/** One figure of a size: time, and processor time of the daemon. */
interface Cost {
  readonly what: string;
  readonly ms: number;
  readonly processorMs: number;
}

const idOf = (text: string): string => createHash('sha256').update(text).digest('hex');
const read = (path: string): Stored => JSON.parse(readFileSync(path, 'utf8')) as Stored;
const write = (path: string, value: object): void => writeFileSync(path, JSON.stringify(value), { mode: 0o600 });

/** The only entry of a directory that has one; throws when there is another number of them. */
function onlyIn(dir: string): string {
  const [name, ...others] = readdirSync(dir);
  if (name === undefined || others.length > 0) throw new Error(`${dir} has not one entry`);
  return name;
}

/** Makes containers as the one that `data` has, whose names and labels differ. */
function makeContainers(data: string, from: string, first: number, end: number): void {
  const record = read(join(data, 'containers', from, 'container.json'));
  const layer = join(data, 'overlay2/writable', from);
  const parent = readlinkSync(join(layer, 'parent'));
  for (let index = first; index < end; index++) {
    const id = idOf(`container ${index}`);
    const config = { ...(record.value['config'] as object), Labels: { index: String(index), third: `${index % 3}` } };
    mkdirSync(join(data, 'containers', id), { mode: 0o710 });
    write(join(data, 'containers', id, 'container.json'), {
      ...record,
      value: { ...record.value, id, name: `/made_${index}`, config },
    });
    mkdirSync(join(data, 'overlay2/writable', id), { mode: 0o710 });
    for (const name of ['diff', 'work', 'merged']) mkdirSync(join(data, 'overlay2/writable', id, name));
    symlinkSync(parent, join(data, 'overlay2/writable', id, 'parent'));
  }
}

/** Makes images over the layers of the one that `data` has, with a name each. */
function makeImages(data: string, from: string, first: number, end: number): void {
  const content = JSON.parse(readFileSync(join(data, 'image/content', from), 'utf8')) as object;
  const metadata = readFileSync(join(data, 'image/metadata', `${from}.json`));
  const references = read(join(data, 'image/references.json'));
  const names: Record<string, unknown> = { ...references.value };
  for (let index = first; index < end; index++) {
    const config = JSON.stringify({ ...content, config: { Labels: { index: String(index), third: `${index % 3}` } } });
    const id = idOf(config);
    writeFileSync(join(data, 'image/content', id), config, { mode: 0o600 });
    writeFileSync(join(data, 'image/metadata', `${id}.json`), metadata, { mode: 0o600 });
    names[`made.invalid/image-${index}:1`] = `sha256:${id}`;
  }
  write(join(data, 'image/references.json'), { ...references, value: names });
}

/** The middle of some runs of each action. */
async function costOf(engine: Engine, what: string, action: () => Promise<unknown>): Promise<Cost> {
  await action();
  const times: number[] = [];
  const before = processMs(engine.pid);
  for (let index = 0; index < TIMES; index++) times.push(await timed(action));
  return { what, ms: median(times), processorMs: (processMs(engine.pid) - before) / TIMES };
}

async function costs(engine: Engine, image: string): Promise<Cost[]> {
  const startMs = await timed(() => engine.start());
  const found: Cost[] = [{ what: 'start of the daemon', ms: startMs, processorMs: processMs(engine.pid) }];
  const get = (path: string) => async (): Promise<void> => {
    const { status, text } = await call(engine.socketPath, 'GET', path);
    if (status !== 200) throw new Error(`${path} gave ${status}: ${text}`);
  };
  const filter = (value: object): string => encodeURIComponent(JSON.stringify(value));
  const reads: readonly (readonly [string, string])[] = [
    ['list of all containers', '/containers/json?all=1'],
    ['list, a third by label', `/containers/json?all=1&filters=${filter({ label: ['third=1'] })}`],
    ['list, one by name', `/containers/json?all=1&filters=${filter({ name: ['made_77$'] })}`],
    ['inspect of a container', '/containers/made_77/json'],
    ['list of all images', '/images/json'],
    ['list, one by reference', `/images/json?filters=${filter({ reference: ['made.invalid/image-77'] })}`],
    ['inspect of an image', '/images/made.invalid/image-77:1/json'],
    ['info', '/info'],
  ];
  for (const [what, path] of reads) found.push(await costOf(engine, what, get(path)));
  found.push(
    await costOf(engine, 'create and remove a container', async () =>
      removeContainer(engine, await createContainer(engine, { image, command: ['/bin/true'], network: 'none' })),
    ),
    await costOf(engine, 'tag an image', async () => {
      const { status } = await call(engine.socketPath, 'POST', `/images/${image}/tag?repo=made.invalid/tag&tag=1`);
      if (status !== 201) throw new Error(`the tag gave ${status}`);
    }),
  );
  return found;
}

/** Prints the costs of both sizes side by side. */
function print(sizes: readonly { readonly costs: readonly Cost[]; readonly mebibytes: number }[]): void {
  const title = SIZES.map(({ containers, images }) => `${containers} containers, ${images} images`);
  console.log(['', ...title].join('  |  '));
  const text = ({ ms, processorMs }: Cost): string => `${ms.toFixed(1)} ms, ${processorMs.toFixed(0)} ms of processor`;
  for (const [index, { what }] of sizes[0]?.costs.entries() ?? [])
    console.log([what, ...sizes.map(({ costs: all }) => (all[index] ? text(all[index]) : ''))].join('  |  '));
  console.log(['memory', ...sizes.map(({ mebibytes }) => `${mebibytes.toFixed(0)} MiB`)].join('  |  '));
}

/** Makes the records of each size over the one before, and measures what the daemon needs for them. */
export async function measureScale(image: string): Promise<void> {
  const engine = await Engine.start(engined());
  try {
    await dockerOk(engine, ['pull', '-q', image]);
    const container = await createContainer(engine, { image, command: ['/bin/true'], network: 'none' });
    const data = join(engine.dir, 'data');
    const imageId = onlyIn(join(data, 'image/content'));
    const taken = [];
    let [containers, images] = [0, 0];
    for (const size of SIZES) {
      await engine.stop();
      makeContainers(data, container, containers, size.containers);
      makeImages(data, imageId, images, size.images);
      ({ containers, images } = size);
      taken.push({ costs: await costs(engine, image), mebibytes: residentBytes(engine.pid) / 2 ** 20 });
    }
    print(taken);
  } finally {
    await engine.discard();
  }
}
