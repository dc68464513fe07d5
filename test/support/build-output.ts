/** The output of steps, as buildx shows it, and the files of layers that they leave. */
import { execFileSync } from 'node:child_process';
import type { Buildx, BuildxResult } from './buildx.js';

/** Returns the lines that processes of the build have written. */
export function outputOf({ stderr }: BuildxResult): string[] {
  return stderr.split('\n').flatMap((line) => {
    const match = /^#\d+ \d+\.\d+ (.*)$/.exec(line);
    return match === null ? [] : [match[1] ?? ''];
  });
}

/** Returns the bytes that processes have written, of progress in JSON. */
export function bytesOf({ stderr }: BuildxResult): Buffer {
  const logs = stderr.split('\n').flatMap((line) => {
    if (!line.startsWith('{')) return [];
    const { logs: pieces = [] } = JSON.parse(line) as { readonly logs?: readonly { readonly data: string }[] };
    return pieces.map(({ data }) => Buffer.from(data, 'base64'));
  });
  return Buffer.concat(logs);
}

/** Returns the names in the topmost layer of an image, sorted. */
export async function topLayerOf(buildx: Buildx, image: string): Promise<string[]> {
  const archive = `${buildx.directory}/saved.tar`;
  await buildx.ok(['save', '-o', archive, image]);
  const text = (...args: readonly string[]): string => execFileSync('tar', [...args], { encoding: 'utf8' });
  const [manifest] = JSON.parse(text('-xOf', archive, 'manifest.json')) as [{ readonly Layers: readonly string[] }];
  const layer = execFileSync('tar', ['-xOf', archive, manifest.Layers.at(-1) ?? ''], { maxBuffer: 1 << 28 });
  const names = execFileSync('tar', ['-t'], { input: layer, encoding: 'utf8' });
  return names.split('\n').filter(Boolean).toSorted();
}
