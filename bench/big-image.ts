/**
 * An image like the ones people pull: ten layers of about 50 MB, many small files and some large, text and machine
 * code.
 */
import { buildImage, buildLayer, generatedBytes, pushImage, type LayerEntry } from '../test/support/image-builder.js';
import type { TestRegistry } from '../test/support/registry.js';

const LAYERS = 10;
/** Files of a layer by size: 50 MB in 1500 files. */
const SIZES = [
  { count: 1070, bytes: 6_000 },
  { count: 400, bytes: 50_000 },
  { count: 30, bytes: 800_000 },
] as const;
const REPOSITORY = 'bench/big';

/** Repeatable prose: words in the skewed frequencies of a language; deflates to about a third. */
function text(size: number, seed: number): Buffer {
  let state = seed + 1;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  const words = Array.from({ length: 2000 }, () =>
    Math.floor(random() * 36 ** 6)
      .toString(36)
      .slice(0, 2 + Math.floor(random() * 6)),
  );
  const parts: string[] = [];
  for (let length = 0; length < size;) {
    const word = words[Math.floor(random() ** 3 * words.length)] ?? '';
    const part = random() < 0.1 ? `${word}\n` : `${word} `;
    parts.push(part);
    length += part.length;
  }
  return Buffer.from(parts.join('').slice(0, size));
}

function layerEntries(layer: number): LayerEntry[] {
  const root = `srv/layer${layer}`;
  const entries: LayerEntry[] = [
    { path: 'srv/', type: 'directory' },
    { path: `${root}/`, type: 'directory' },
  ];
  for (const { count, bytes } of SIZES) {
    // Two kinds of content in long stretches; every file starts somewhere else in them.
    const sources = [text(2 * bytes, layer * 31 + bytes), generatedBytes(2 * bytes, layer * 17 + bytes)];
    entries.push({ path: `${root}/${bytes}/`, type: 'directory' });
    for (let index = 0; index < count; index++) {
      const source = sources[index % 2] ?? Buffer.alloc(0);
      const begin = Math.floor((index / count) * bytes);
      const content = Buffer.from(source.subarray(begin, begin + bytes));
      content.writeUInt32LE(index, 0);
      entries.push({ path: `${root}/${bytes}/f${index}`, content, mode: index % 8 === 0 ? 0o755 : 0o644 });
    }
  }
  return entries;
}

/** The tar of one layer of the image. */
export function tarOfBigLayer(index: number): Buffer {
  return buildLayer(layerEntries(index), 'none').blob;
}

/** Makes sure that the registry has the image, and gives its reference. Making it takes about a minute, once. */
export async function ensureBigImage(registry: TestRegistry): Promise<string> {
  const reference = `${registry.host}/${REPOSITORY}:1`;
  const head = await fetch(`${registry.url}/v2/${REPOSITORY}/manifests/1`, { method: 'HEAD' });
  if (head.status === 200) return reference;
  console.error('making the large image');
  const layers = Array.from({ length: LAYERS }, (_, index) => buildLayer(layerEntries(index)));
  await pushImage(registry.url, REPOSITORY, '1', buildImage({ layers }));
  return reference;
}
