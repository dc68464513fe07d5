/** More images for pulls: one layer of 1 GB, one of 20,000 small files, and a hundred layers. */
import { buildImage, generatedLayer, pushImage } from '../test/support/image-builder.js';
import type { TestRegistry } from '../test/support/registry.js';

/** The layers of each image. */
const SHAPES = {
  'bench/large-layer': [{ root: 'srv', bytes: 1 << 30, files: 32, seed: 71 }],
  'bench/many-files': [{ root: 'srv', bytes: 20_000 * 2048, files: 20_000, seed: 72 }],
  'bench/many-layers': Array.from({ length: 100 }, (_, index) => {
    return { root: `srv-${index}`, bytes: 100 * 2048, files: 100, seed: 100 + index };
  }),
} as const;

export type Shape = keyof typeof SHAPES;

/** Makes sure that the registry has the image, and gives its reference. */
export async function ensureShapedImage(registry: TestRegistry, repository: Shape): Promise<string> {
  const head = await fetch(`${registry.url}/v2/${repository}/manifests/1`, { method: 'HEAD' });
  if (head.status !== 200) {
    console.error(`making ${repository}`);
    const layers = SHAPES[repository].map((layer) => generatedLayer(layer));
    await pushImage(registry.url, repository, '1', buildImage({ layers }));
  }
  return `${registry.host}/${repository}:1`;
}
