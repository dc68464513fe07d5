/** The outputs of a build: images in the store, and files for the door. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { canonicalString, parseReference, withDefaultTag } from '../../../images/reference.js';
import { eventAttributes } from '../../../images/removal.js';
import { EngineError } from '../../../errors/engine-error.js';
import type { BuildOutput, PlatformResult, ResultFiles } from '../../../ports/build.js';
import type { Digest } from '../../../ports/storage.js';
import { configBytes } from './image-config.js';
import { rewriteTimes } from './rewrite-times.js';
import { NO_FILES } from './step-result.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

/**
 * Makes the outputs of a request. Returns the ID of the image; undefined when none is wanted.
 * @param results of the platforms; only one where an image for the store is wanted.
 */
export async function exportResults(
  tools: SolveTools,
  vertices: Vertices,
  results: readonly PlatformResult[],
  signal: AbortSignal,
): Promise<Digest | undefined> {
  let image: Digest | undefined;
  for (const output of tools.request.outputs) {
    if (signal.aborted) throw new EngineError('cancelled', 'context canceled');
    const [result] = results;
    if (result === undefined) continue;
    if (output.kind === 'image') {
      const { epoch } = output;
      const shown = epoch === undefined ? result : await rewriteTimes(tools, result, epoch, signal);
      image = await exportImage(tools, vertices, shown, { ...output, signal });
      await output.named?.();
    } else if (output.kind === 'files') await exportFiles(tools, results, output);
    else await output.take(results);
  }
  return image;
}

function exportImage(
  { deps: { images, emit } }: SolveTools,
  vertices: Vertices,
  { config, topLayer }: PlatformResult,
  { names, signal }: Pick<Extract<BuildOutput, { kind: 'image' }>, 'names'> & { readonly signal: AbortSignal },
): Promise<Digest> {
  return vertices.during('exporting to image', async (vertex) => {
    // The layers are in the store already.
    if (topLayer !== undefined) await vertices.status(vertex, 'exporting layers', () => Promise.resolve());
    const image = await images.createMade(await configBytes(config, signal), { document: config });
    await vertices.status(vertex, `writing image ${image.id}`, () => Promise.resolve());
    const letGo = images.hold(image.id);
    try {
      for (const name of names) {
        const full = canonicalString(withDefaultTag(parseReference(name)));
        await vertices.status(vertex, `naming to ${full}`, () => images.tag(name, image.id));
        emit('tag', image.id, eventAttributes(image, name));
      }
      emit('create', image.id, eventAttributes(image, image.id));
    } finally {
      letGo();
    }
    return image.id;
  });
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
