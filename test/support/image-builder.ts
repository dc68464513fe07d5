/**
 * Builds images in memory from lists of files and pushes them over the registry API. Nothing here shares code with the
 * daemon.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

export type TestDigest = `sha256:${string}`;

export interface LayerEntry {
  /** Without a leading slash, as layer archives have it (a test may break that rule on purpose). */
  readonly path: string;
  readonly type?: 'file' | 'directory' | 'symlink' | 'link' | 'fifo' | 'character-device' | 'block-device';
  readonly content?: Buffer | string;
  /** Target of a symlink or hard link. */
  readonly target?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  /** Seconds since the epoch. */
  readonly mtime?: number;
  readonly major?: number;
  readonly minor?: number;
  readonly xattrs?: Readonly<Record<string, string>>;
}

export type Compression = 'gzip' | 'zstd' | 'none';

export interface BuiltLayer {
  readonly blob: Buffer;
  readonly digest: TestDigest;
  /** Digest of the uncompressed tar. */
  readonly diffId: TestDigest;
  readonly compression: Compression;
  readonly tarSize: number;
}

export interface ImageSpec {
  readonly layers: readonly BuiltLayer[];
  /** Members of the `config` object: `Cmd`, `Env`, ... */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly architecture?: string;
  readonly variant?: string;
  readonly os?: string;
  readonly format?: 'docker' | 'oci';
  /** RFC 3339; fixed by default, so that equal specs give equal digests. */
  readonly created?: string;
}

export interface BuiltImage {
  readonly config: Buffer;
  /** Digest of the config: the image ID. */
  readonly id: TestDigest;
  readonly manifest: Buffer;
  readonly digest: TestDigest;
  readonly mediaType: string;
  readonly layers: readonly BuiltLayer[];
  readonly platform: { readonly architecture: string; readonly os: string; readonly variant?: string };
}

export function sha256(bytes: Buffer | string): TestDigest {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

const TYPE_FLAGS = {
  file: '0',
  link: '1',
  symlink: '2',
  'character-device': '3',
  'block-device': '4',
  directory: '5',
  fifo: '6',
} as const;
const BLOCK = 512;

function headerBlock(name: string, flag: string, size: number, entry: LayerEntry): Buffer {
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, offset: number, width: number): void =>
    void block.write(value.toString(8).padStart(width - 1, '0'), offset);
  block.write(name, 0, 100);
  octal(entry.mode ?? (entry.type === 'directory' ? 0o755 : 0o644), 100, 8);
  octal(entry.uid ?? 0, 108, 8);
  octal(entry.gid ?? 0, 116, 8);
  octal(size, 124, 12);
  octal(entry.mtime ?? 1_700_000_000, 136, 12);
  block.write(' '.repeat(8), 148);
  block.write(flag, 156);
  block.write(entry.target ?? '', 157, 100);
  block.write('ustar\u000000', 257);
  octal(entry.major ?? 0, 329, 8);
  octal(entry.minor ?? 0, 337, 8);
  let sum = 0;
  for (let index = 0; index < BLOCK; index++) sum += block[index] ?? 0;
  octal(sum, 148, 7);
  return block;
}

function padded(content: Buffer): Buffer[] {
  return content.length === 0 ? [] : [content, Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK)];
}

/** One pax record: its length field counts itself. */
function paxRecord(key: string, value: string): Buffer {
  const body = Buffer.from(` ${key}=${value}\n`);
  let length = body.length + 1;
  while (String(length).length + body.length !== length) length = String(length).length + body.length;
  return Buffer.concat([Buffer.from(String(length)), body]);
}

/** Packs the entries in the given order, without checking them: tests may write what no honest tool would. */
export function tarOf(entries: readonly LayerEntry[]): Buffer {
  const parts: Buffer[] = [];
  for (const entry of entries) {
    const content =
      entry.type === undefined || entry.type === 'file' ? Buffer.from(entry.content ?? '') : Buffer.alloc(0);
    const records: Buffer[] = [];
    if (Buffer.byteLength(entry.path) > 100 || /[^ -~]/.test(entry.path)) records.push(paxRecord('path', entry.path));
    if (entry.target !== undefined && Buffer.byteLength(entry.target) > 100)
      records.push(paxRecord('linkpath', entry.target));
    for (const [name, value] of Object.entries(entry.xattrs ?? {}))
      records.push(paxRecord(`SCHILY.xattr.${name}`, value));
    if (records.length > 0) {
      const pax = Buffer.concat(records);
      parts.push(headerBlock('PaxHeader', 'x', pax.length, { path: '' }), ...padded(pax));
    }
    parts.push(headerBlock(entry.path, TYPE_FLAGS[entry.type ?? 'file'], content.length, entry), ...padded(content));
  }
  parts.push(Buffer.alloc(2 * BLOCK));
  return Buffer.concat(parts);
}

/** Wraps a tar in the given compression. gzip is fast rather than small: no test asks how well it compresses. */
export function layerOfTar(tar: Buffer, compression: Compression = 'gzip'): BuiltLayer {
  const blob =
    compression === 'gzip'
      ? gzipSync(tar, { level: 1 })
      : compression === 'zstd'
        ? execFileSync('zstd', ['-q', '-c'], { input: tar, maxBuffer: tar.length * 2 + 65_536 })
        : tar;
  return { blob, digest: sha256(blob), diffId: sha256(tar), compression, tarSize: tar.length };
}

export function buildLayer(entries: readonly LayerEntry[], compression: Compression = 'gzip'): BuiltLayer {
  return layerOfTar(tarOf(entries), compression);
}

const DOCKER = {
  manifest: 'application/vnd.docker.distribution.manifest.v2+json',
  list: 'application/vnd.docker.distribution.manifest.list.v2+json',
  config: 'application/vnd.docker.container.image.v1+json',
  layer: {
    gzip: 'application/vnd.docker.image.rootfs.diff.tar.gzip',
    zstd: 'application/vnd.docker.image.rootfs.diff.tar.zstd',
    none: 'application/vnd.docker.image.rootfs.diff.tar',
  },
} as const;
const OCI = {
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  list: 'application/vnd.oci.image.index.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: {
    gzip: 'application/vnd.oci.image.layer.v1.tar+gzip',
    zstd: 'application/vnd.oci.image.layer.v1.tar+zstd',
    none: 'application/vnd.oci.image.layer.v1.tar',
  },
} as const;

export function buildImage(spec: ImageSpec): BuiltImage {
  const types = spec.format === 'oci' ? OCI : DOCKER;
  const created = spec.created ?? '2024-01-02T03:04:05.678901234Z';
  const platform = {
    architecture: spec.architecture ?? 'amd64',
    os: spec.os ?? 'linux',
    ...(spec.variant === undefined ? {} : { variant: spec.variant }),
  };
  const config = Buffer.from(
    JSON.stringify({
      ...platform,
      created,
      config: {
        Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
        Cmd: ['sh'],
        ...spec.config,
      },
      rootfs: { type: 'layers', diff_ids: spec.layers.map((layer) => layer.diffId) },
      history: spec.layers.map((_, index) => ({ created, created_by: `layer ${index}` })),
    }),
  );
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: types.manifest,
      config: { mediaType: types.config, size: config.length, digest: sha256(config) },
      layers: spec.layers.map((layer) => ({
        mediaType: types.layer[layer.compression],
        size: layer.blob.length,
        digest: layer.digest,
      })),
    }),
  );
  return {
    config,
    id: sha256(config),
    manifest,
    digest: sha256(manifest),
    mediaType: types.manifest,
    layers: spec.layers,
    platform,
  };
}

/** A manifest list (docker) or image index (oci) over the given images, with extra descriptors such as attestations. */
export function buildIndex(
  images: readonly BuiltImage[],
  format: 'docker' | 'oci' = 'docker',
  extra: readonly Readonly<Record<string, unknown>>[] = [],
): { readonly manifest: Buffer; readonly digest: TestDigest; readonly mediaType: string } {
  const mediaType = (format === 'oci' ? OCI : DOCKER).list;
  const manifests = images.map((image) => ({
    mediaType: image.mediaType,
    size: image.manifest.length,
    digest: image.digest,
    platform: image.platform,
  }));
  const manifest = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests: [...manifests, ...extra] }));
  return { manifest, digest: sha256(manifest), mediaType };
}

async function expectStatus(response: Response, ...statuses: number[]): Promise<Response> {
  if (statuses.includes(response.status)) return response;
  throw new Error(`registry answered ${response.status} to ${response.url}: ${await response.text()}`);
}

/** Uploads a blob unless the repository has it. */
export async function pushBlob(
  registryUrl: string,
  repository: string,
  blob: Buffer,
  headers: Record<string, string> = {},
): Promise<TestDigest> {
  const digest = sha256(blob);
  const head = await fetch(`${registryUrl}/v2/${repository}/blobs/${digest}`, { method: 'HEAD', headers });
  if (head.status === 200) return digest;
  const start = await expectStatus(
    await fetch(`${registryUrl}/v2/${repository}/blobs/uploads/`, { method: 'POST', headers }),
    202,
  );
  const location = new URL(start.headers.get('location') ?? '', registryUrl);
  location.searchParams.set('digest', digest);
  const put = await fetch(location, {
    method: 'PUT',
    headers: { ...headers, 'content-type': 'application/octet-stream' },
    body: new Uint8Array(blob),
  });
  await expectStatus(put, 201);
  return digest;
}

/** Uploads a manifest under a tag or digest. */
export async function pushManifest(
  registryUrl: string,
  repository: string,
  reference: string,
  manifest: { readonly manifest: Buffer; readonly mediaType: string },
  headers: Record<string, string> = {},
): Promise<void> {
  const url = `${registryUrl}/v2/${repository}/manifests/${reference}`;
  const put = await fetch(url, {
    method: 'PUT',
    headers: { ...headers, 'content-type': manifest.mediaType },
    body: new Uint8Array(manifest.manifest),
  });
  await expectStatus(put, 201);
}

/** Uploads layers, config and manifest; resolves with the manifest digest. */
export async function pushImage(
  registryUrl: string,
  repository: string,
  reference: string,
  image: BuiltImage,
  headers: Record<string, string> = {},
): Promise<TestDigest> {
  for (const layer of image.layers) await pushBlob(registryUrl, repository, layer.blob, headers);
  await pushBlob(registryUrl, repository, image.config, headers);
  await pushManifest(registryUrl, repository, reference, image, headers);
  return image.digest;
}

/**
 * A small userland: the static busybox of the machine with all its applets as symlinks, and what programs expect in
 * /etc.
 */
export function busyboxEntries(busybox = '/bin/busybox'): LayerEntry[] {
  const applets = execFileSync(busybox, ['--list'], { encoding: 'utf8' })
    .split('\n')
    .filter((name) => name !== '' && name !== 'busybox');
  const directories = [
    'bin',
    'dev',
    'etc',
    'home',
    'proc',
    'root',
    'run',
    'sbin',
    'sys',
    'tmp',
    'usr',
    'usr/bin',
    'usr/sbin',
    'var',
  ];
  return [
    ...directories.map((path): LayerEntry => ({
      path: `${path}/`,
      type: 'directory',
      mode: path === 'tmp' ? 0o1777 : path === 'root' ? 0o700 : 0o755,
    })),
    { path: 'bin/busybox', content: readFileSync(busybox), mode: 0o755 },
    ...applets.map((name): LayerEntry => ({ path: `bin/${name}`, type: 'symlink', target: 'busybox', mode: 0o777 })),
    {
      path: 'etc/passwd',
      content:
        'root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n' +
        'nobody:x:65534:65534:nobody:/home:/bin/false\n',
    },
    { path: 'etc/group', content: 'root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n' },
  ];
}

/** Repeatable bytes that compress about two to one, as program files do. */
export function generatedBytes(size: number, seed: number): Buffer {
  const words = new Uint32Array(Math.ceil(size / 4));
  let state = (seed * 2_654_435_761 + 1) >>> 0;
  for (let index = 0; index < words.length; index++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    // Every other word comes from a very small alphabet: the compressible half.
    words[index] = index & 1 ? state & 0x0000_0003 : state;
  }
  return Buffer.from(words.buffer, 0, size);
}

/** A layer of `files` files in a tree under `root`, `bytes` in all: what a package manager leaves behind. */
export function generatedLayer(options: {
  readonly root: string;
  readonly bytes: number;
  readonly files: number;
  readonly seed: number;
  readonly compression?: Compression;
}): BuiltLayer {
  const { root, bytes, files, seed } = options;
  const content = generatedBytes(Math.ceil(bytes / files), seed);
  const entries: LayerEntry[] = [{ path: `${root}/`, type: 'directory' }];
  for (let index = 0; index < files; index++) {
    if (index % 100 === 0) entries.push({ path: `${root}/d${index / 100}/`, type: 'directory' });
    const own = Buffer.from(content);
    own.writeUInt32LE(index, 0);
    entries.push({
      path: `${root}/d${Math.floor(index / 100)}/f${index}`,
      content: own,
      mode: index % 10 === 0 ? 0o755 : 0o644,
    });
  }
  return buildLayer(entries, options.compression);
}

/** One layer with every file type, links, odd modes, owners, long names and xattrs. */
export function everyFileType(): LayerEntry[] {
  const long = `${'deep/'.repeat(30)}${'n'.repeat(120)}`;
  return [
    { path: 'types/', type: 'directory', mode: 0o2775, uid: 1000, gid: 2000, mtime: 1_600_000_001 },
    { path: 'types/plain', content: 'plain\n', uid: 1, gid: 2, mtime: 1_600_000_002 },
    { path: 'types/empty' },
    { path: 'types/setuid', content: '#!/bin/sh\n', mode: 0o4755 },
    { path: 'types/hard', type: 'link', target: 'types/plain' },
    { path: 'types/soft', type: 'symlink', target: 'plain', mtime: 1_600_000_003 },
    { path: 'types/dangling', type: 'symlink', target: '/nowhere/at/all' },
    { path: 'types/fifo', type: 'fifo', mode: 0o600 },
    { path: 'types/null', type: 'character-device', major: 1, minor: 3, mode: 0o666 },
    { path: 'types/loop', type: 'block-device', major: 7, minor: 0, mode: 0o660 },
    { path: 'types/xattr', content: 'x', xattrs: { 'user.colour': 'green' } },
    { path: 'types/umlaut-\u00e4\u00f6\u00fc', content: 'utf-8 name' },
    { path: long, content: 'long name' },
  ];
}
