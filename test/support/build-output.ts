/** The output of steps, as buildx shows it, and the files of layers that they leave. */
import { execFileSync } from 'node:child_process';
import type { BuildxResult } from './buildx.js';
import type { Engine } from './engine.js';
import { call } from './http.js';

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
export async function topLayerOf(engine: Engine, image: string): Promise<string[]> {
  const archive = await call(engine.socketPath, 'GET', `/images/${image}/get`);
  if (archive.status !== 200) throw new Error(`save gave ${archive.status}: ${archive.text}`);
  const read = (name: string): Buffer =>
    execFileSync('tar', ['-xO', name], { input: archive.body, maxBuffer: 1 << 28 });
  const [manifest] = JSON.parse(String(read('manifest.json'))) as [{ readonly Layers: readonly string[] }];
  const names = execFileSync('tar', ['-t'], { input: read(manifest.Layers.at(-1) ?? ''), encoding: 'utf8' });
  return names.split('\n').filter(Boolean).toSorted();
}
