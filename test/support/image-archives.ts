/** Archives of images for `load`, written by hand: old layouts, new ones, and ones that no tool would write. */
import { execFileSync } from 'node:child_process';
import type { Engine } from './engine.js';
import { call } from './http.js';
import { buildIndex, type BuiltImage, type LayerEntry, sha256, tarOf } from './image-builder.js';
import { connect, type Socket } from 'node:net';
import { gunzipSync } from 'node:zlib';

export interface LoadReply {
  /** Its output, one line each. */
  readonly lines: readonly string[];
  readonly error: string | undefined;
  /** Ids of progress lines. */
  readonly layers: readonly string[];
}

export async function load(engine: Engine, archive: Buffer, query = 'quiet=1'): Promise<LoadReply> {
  const reply = await call(engine.socketPath, 'POST', `/images/load?${query}`, {
    body: archive,
    headers: { 'Content-Type': 'application/x-tar' },
  });
  if (reply.status !== 200)
    return { lines: [], error: (JSON.parse(reply.text) as { message: string }).message, layers: [] };
  const messages = reply.text
    .split('\r\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { stream?: string; error?: string; id?: string });
  return {
    lines: messages.flatMap(({ stream }) => (stream === undefined ? [] : [stream.trim()])),
    error: messages.find(({ error }) => error !== undefined)?.error,
    layers: messages.flatMap(({ id }) => (id === undefined ? [] : [id])),
  };
}

export function plainTar(layer: BuiltImage['layers'][number]): Buffer {
  return layer.compression === 'gzip' ? gunzipSync(layer.blob) : layer.blob;
}

/**
 * `<id>/layer.tar`, `<config>.json` and `manifest.json`, as Docker wrote it before version 25. A layer that came before
 * is a link.
 */
export function oldArchive(
  image: BuiltImage,
  tags: readonly string[],
  edit: (manifest: Record<string, unknown>) => void = () => undefined,
): LayerEntry[] {
  const first = new Map<string, string>();
  const entries: LayerEntry[] = [];
  const paths = image.layers.map((layer, index) => {
    const directory = sha256(`${index}`).slice(7);
    const before = first.get(layer.diffId);
    first.set(layer.diffId, before ?? directory);
    entries.push(
      { path: `${directory}/`, type: 'directory' },
      { path: `${directory}/VERSION`, content: '1.0' },
      { path: `${directory}/json`, content: '{}' },
    );
    const path = `${directory}/layer.tar`;
    entries.push(
      before === undefined
        ? { path, content: plainTar(layer) }
        : { path, type: 'symlink', target: `../${before}/layer.tar` },
    );
    return path;
  });
  const config = `${image.id.slice(7)}.json`;
  const manifest: Record<string, unknown> = { Config: config, RepoTags: tags, Layers: paths };
  edit(manifest);
  return [
    ...entries,
    { path: config, content: image.config },
    { path: 'manifest.json', content: JSON.stringify([manifest]) },
  ];
}

/** An OCI layout without `manifest.json`, its layers as the image has them. */
export function ociLayout(image: BuiltImage, annotations: Readonly<Record<string, string>>): LayerEntry[] {
  const blob = (bytes: Buffer): LayerEntry => ({ path: `blobs/sha256/${sha256(bytes).slice(7)}`, content: bytes });
  const descriptor = { mediaType: image.mediaType, digest: image.digest, size: image.manifest.length, annotations };
  return [
    ...image.layers.map((layer) => blob(layer.blob)),
    blob(image.config),
    blob(image.manifest),
    { path: 'index.json', content: JSON.stringify({ schemaVersion: 2, manifests: [descriptor] }) },
    { path: 'oci-layout', content: '{"imageLayoutVersion":"1.0.0"}' },
  ];
}

/** An OCI layout of an index with these images. @param name such as `docker.io/library/a:1`. */
export function indexLayout(images: readonly BuiltImage[], name: string): LayerEntry[] {
  const { manifest, mediaType, digest } = buildIndex(images, 'oci');
  const annotations = { 'io.containerd.image.name': name };
  const descriptor = { mediaType, digest, size: manifest.length, annotations };
  return [
    ...images.flatMap((image) => ociLayout(image, {}).filter(({ path }) => path.startsWith('blobs/'))),
    { path: `blobs/sha256/${digest.slice(7)}`, content: manifest },
    { path: 'index.json', content: JSON.stringify({ schemaVersion: 2, manifests: [descriptor] }) },
    { path: 'oci-layout', content: '{"imageLayoutVersion":"1.0.0"}' },
  ];
}

export function archiveOf(entries: readonly LayerEntry[]): Buffer {
  return tarOf(entries);
}

/** Sends the first bytes of an archive to be loaded, and leaves the connection open. */
export function beginLoad(engine: Engine, archive: Buffer, bytes: number): Socket {
  const socket = connect(engine.socketPath);
  socket.on('error', () => undefined);
  socket.write(
    'POST /images/load HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-tar\r\n' +
      `Content-Length: ${archive.length}\r\n\r\n`,
  );
  socket.write(archive.subarray(0, bytes));
  return socket;
}

/** Returns the digests of the blobs in an archive, and those that its index.json names. */
export function inArchive(archive: Buffer): { readonly blobs: string[]; readonly named: string[] } {
  const names = execFileSync('tar', ['-t'], { input: archive, encoding: 'utf8' }).split('\n');
  const blobs = names.flatMap((name) => /^blobs\/sha256\/(\w+)$/.exec(name)?.[1] ?? []).map((hex) => `sha256:${hex}`);
  const index = execFileSync('tar', ['-xO', 'index.json'], { input: archive, encoding: 'utf8' });
  const { manifests } = JSON.parse(index) as { readonly manifests: readonly { readonly digest: string }[] };
  return { blobs: blobs.sort(), named: manifests.map(({ digest }) => digest) };
}
