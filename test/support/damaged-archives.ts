/** Archives of an image with two layers that are damaged or mean harm, and how each is refused. */
import { gzipSync } from 'node:zlib';
import { archiveOf, ociLayout, oldArchive } from './image-archives.js';
import { type BuiltImage } from './image-builder.js';

type Damaged = readonly [what: string, archive: Buffer, message: RegExp];
type Edit = (manifest: Record<string, unknown>) => void;

/** The files of the archive, of which tests change some. */
class Files {
  readonly layerPath: string;

  constructor(
    private readonly image: BuiltImage,
    private readonly names: readonly string[],
  ) {
    this.layerPath = this.entries().find(({ path }) => path.endsWith('layer.tar'))?.path ?? '';
  }

  entries(edit?: Edit): ReturnType<typeof oldArchive> {
    return oldArchive(this.image, this.names, edit);
  }

  edited(edit: Edit): Buffer {
    return archiveOf(this.entries(edit));
  }

  replaced(path: string, content: Buffer | string): Buffer {
    return archiveOf(this.entries().map((entry) => (entry.path === path ? { ...entry, content } : entry)));
  }

  linked(...links: { path: string; target: string; type?: 'link' | 'symlink' }[]): Buffer {
    return archiveOf([
      ...this.entries((manifest) => (manifest['Layers'] = [links[0]?.path, this.layerPath])),
      ...links.map((link) => ({ type: 'symlink' as const, ...link })),
    ]);
  }
}

export function damagedArchives(image: BuiltImage, names: readonly string[]): readonly Damaged[] {
  const files = new Files(image, names);
  return [...brokenArchives(files), ...waysOut(files), ...wrongLayers(files), ...wrongContents(files, image)];
}

function brokenArchives(files: Files): readonly Damaged[] {
  const good = archiveOf(files.entries());
  return [
    ['no tar', Buffer.from('this is no archive. '.repeat(100)), /tar header/],
    ['nothing', Buffer.alloc(0), /unexpected EOF/],
    ['cut off', good.subarray(0, 2000), /unexpected EOF/],
    ['cut off in the compression', gzipSync(good).subarray(0, 300), /unexpected end of file/],
    [
      'bad xz',
      Buffer.concat([Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]), Buffer.alloc(600, 7)]),
      /decompressing/,
    ],
    ['no manifest', archiveOf([{ path: 'a', content: 'b' }]), /neither manifest\.json nor index\.json/],
    ['no JSON', files.replaced('manifest.json', '[{'), /not JSON/],
    ['not a list', files.replaced('manifest.json', '{}'), /not an array/],
    ['null', files.replaced('manifest.json', '[null]'), /without Config/],
    [
      'no configuration',
      files.edited((manifest) => (manifest['Config'] = 'other.json')),
      /no configuration "other.json"/,
    ],
  ];
}

function waysOut(files: Files): readonly Damaged[] {
  return [
    [
      'a path out of it',
      files.edited((manifest) => (manifest['Config'] = '../../etc/passwd')),
      /is outside of the archive's root|out of the archive/,
    ],
    [
      'an entry out of it',
      archiveOf([{ path: '../../evil', content: 'x' }, ...files.entries()]),
      /is outside of the archive's root/,
    ],
    [
      'a link out of it',
      files.linked({ path: 'evil/layer.tar', target: '../../../../etc/shadow' }),
      /is outside of the archive's root/,
    ],
    ['an absolute link', files.linked({ path: 'evil/layer.tar', target: '/etc/shadow' }), /points out of the archive/],
    [
      'links in a circle',
      files.linked(
        { path: 'x/layer.tar', target: '../y/layer.tar' },
        { path: 'y/layer.tar', target: '../x/layer.tar' },
      ),
      /too many links/,
    ],
  ];
}

function wrongLayers(files: Files): readonly Damaged[] {
  return [
    [
      'a layer that is missing',
      files.edited((manifest) => (manifest['Layers'] = ['gone', files.layerPath])),
      /no layer "gone"/,
    ],
    [
      'too few layers',
      files.edited((manifest) => (manifest['Layers'] = [files.layerPath])),
      /layers length mismatch: expected 2, got 1/,
    ],
    [
      'layers in the wrong order',
      files.edited((manifest) => (manifest['Layers'] = [...(manifest['Layers'] as string[])].reverse())),
      /invalid diffID for layer 0/,
    ],
    [
      'another layer',
      files.replaced(files.layerPath, archiveOf([{ path: 'a', content: 'evil' }])),
      /invalid diffID for layer 0: expected/,
    ],
    [
      'a layer that breaks out',
      files.replaced(files.layerPath, archiveOf([{ path: '../../../../evil', content: 'evil' }])),
      /is outside of the archive's root/,
    ],
  ];
}

function wrongContents(files: Files, image: BuiltImage): readonly Damaged[] {
  const layout = ociLayout(image, {});
  return [
    ['a bad name', files.edited((manifest) => (manifest['RepoTags'] = ['A B:c'])), /invalid tag "A B:c"/],
    ['a name without a tag', files.edited((manifest) => (manifest['RepoTags'] = ['small'])), /invalid tag "small"/],
    [
      'a wrong blob digest',
      archiveOf(
        layout.map((entry) =>
          entry.path === `blobs/sha256/${image.id.slice(7)}`
            ? { ...entry, content: '{"rootfs":{"diff_ids":[]}}' }
            : entry,
        ),
      ),
      /has the digest/,
    ],
    [
      'a missing blob',
      archiveOf(layout.filter(({ path }) => path !== `blobs/sha256/${image.digest.slice(7)}`)),
      /has no blob/,
    ],
    [
      'another system',
      files.replaced(
        `${image.id.slice(7)}.json`,
        JSON.stringify({ os: 'windows', rootfs: { type: 'layers', diff_ids: [] } }),
      ),
      /cannot load windows image/,
    ],
  ];
}
