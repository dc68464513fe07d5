/** More images for pulls: one layer of 1 GB, and one of 20,000 small files. */
import { buildImage, generatedLayer, pushImage } from '../test/support/image-builder.js';
import type { TestRegistry } from '../test/support/registry.js';

const SHAPES = {
  'bench/large-layer': { root: 'srv', bytes: 1 << 30, files: 32, seed: 71 },
  'bench/many-files': { root: 'srv', bytes: 20_000 * 2048, files: 20_000, seed: 72 },
} as const;

/** Makes sure that the registry has the image, and gives its reference. */
export async function ensureShapedImage(registry: TestRegistry, repository: keyof typeof SHAPES): Promise<string> {
  const head = await fetch(`${registry.url}/v2/${repository}/manifests/1`, { method: 'HEAD' });
  if (head.status !== 200) {
    console.error(`making ${repository}`);
    await pushImage(registry.url, repository, '1', buildImage({ layers: [generatedLayer(SHAPES[repository])] }));
  }
  return `${registry.host}/${repository}:1`;
}
