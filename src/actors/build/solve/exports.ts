/** The outputs of a build: images in the store, and files for the door. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { canonicalString, parseReference } from '../../../images/reference.js';
import { eventAttributes } from '../../../images/removal.js';
import { exportedParts } from '../../../build/outputs/image-set.js';
import { EngineError, invalid } from '../../../errors/engine-error.js';
import type { BuildOutput, PlatformResult, ResultFiles } from '../../../ports/build.js';
import type { Image } from '../../../ports/images.js';
import { configBytes } from './image-config.js';
import { rewriteTimes } from './rewrite-times.js';
import { NO_FILES } from './step-result.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

/**
 * Makes the outputs of a request. Returns the image; undefined when none is wanted.
 * @param results of the platforms; only one where an image for the store is wanted that gets no documents.
 */
export async function exportResults(
  tools: SolveTools,
  vertices: Vertices,
  results: readonly PlatformResult[],
  signal: AbortSignal,
): Promise<Image | undefined> {
  let image: Image | undefined;
  for (const output of tools.request.outputs) {
    if (signal.aborted) throw new EngineError('cancelled', 'context canceled');
    if (output.kind === 'image') {
      const { epoch } = output;
      const shown: PlatformResult[] = [];
      for (const one of results) shown.push(epoch === undefined ? one : await rewriteTimes(tools, one, epoch, signal));
      image = await exportImage(tools, vertices, shown, { ...output, signal });
      await output.named?.();
    } else if (output.kind === 'files') await exportFiles(tools, results, output);
    else await output.take(results);
  }
  return image;
}

type ImageOutput = Extract<BuildOutput, { kind: 'image' }>;

function exportImage(
  { deps: { images, emit }, request }: SolveTools,
  vertices: Vertices,
  results: readonly PlatformResult[],
  { names, documents, signal }: Pick<ImageOutput, 'names' | 'documents'> & { readonly signal: AbortSignal },
): Promise<Image> {
  return vertices.during('exporting to image', async (vertex) => {
    const say = (text: string): Promise<void> => vertices.status(vertex, text, () => Promise.resolve());
    // The layers are in the store already.
    if (results.some(({ topLayer }) => topLayer !== undefined)) await say('exporting layers');
    // It is in the configuration already.
    if (request.inlineCache) await say('preparing layers for inline cache');
    const image = documents
      ? await createSet(images, results, documents, say)
      : await createOne(images, results, signal);
    if (!documents) await say(`writing image ${image.id}`);
    const letGo = images.hold(image.id);
    try {
      for (const name of names) {
        const full = canonicalString(parseReference(name));
        await vertices.status(vertex, `naming to ${full}`, () => images.tag(name, image.id));
        emit('tag', image.id, eventAttributes(image, name));
      }
      emit('create', image.id, eventAttributes(image, image.id));
    } finally {
      letGo();
    }
    return image;
  });
}

async function createOne(
  images: SolveTools['deps']['images'],
  [result, ...others]: readonly PlatformResult[],
  signal: AbortSignal,
): Promise<Image> {
  if (result === undefined || others.length > 0) throw severalPlatforms();
  const { config } = result;
  return images.createMade(await configBytes(config, signal), { document: config });
}

/** Makes an image of several platforms, or one of which something is attested. */
function createSet(
  images: SolveTools['deps']['images'],
  results: readonly PlatformResult[],
  documents: NonNullable<ImageOutput['documents']>,
  say: (text: string) => Promise<void>,
): Promise<Image> {
  const diffIds = results.map(({ config }) => config.rootfs.diff_ids);
  return images.createSet(diffIds, async (layers) => {
    const set = await documents(results, layers);
    for (const part of exportedParts(set)) await say(part);
    return set;
  });
}

/** The words begin as those of another builder do, by which people look for help. */
export function severalPlatforms(): Error {
  return invalid(
    'exporting multiple references to image store is currently unsupported: this store keeps one platform of an ' +
      'image. Push an image of several platforms (--push), have it written (--output type=oci,dest=FILE), or start ' +
      'the daemon with --feature supervisor-snapshotter, whose store keeps them all',
  );
}

async function exportFiles(
  tools: SolveTools,
  results: readonly PlatformResult[],
  { take }: Extract<BuildOutput, { kind: 'files' }>,
): Promise<void> {
  const [only, ...others] = results;
  if (only !== undefined && others.length === 0) {
    const { directory } = await tools.filesOf({ ...NO_FILES, layer: only.topLayer });
    return take([filesOf(only, directory)], directory);
  }
  const together = join(await tools.directory('build-results-'), 'all');
  await mkdir(together);
  const files: ResultFiles[] = [];
  for (const result of results) {
    const directory = join(together, result.platform.replaceAll('/', '_'));
    await tools.mountAt(result.topLayer, directory);
    files.push(filesOf(result, directory));
  }
  await take(files, together);
}

function filesOf(result: PlatformResult, directory: string): ResultFiles {
  return { platform: result.platform, scanned: result.scanned, recipe: () => result.recipe(), directory };
}
