/** Tells what images are, from the archive that `docker save` makes: files, configuration, history. */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { extract } from 'tar-stream';

export interface ImageRecord {
  /** Layers over those of the base image. */
  readonly layers: number;
  /** One line for each file that the base image does not have so; see `describe`. */
  readonly files: readonly string[];
  /** Files of the base image that are gone. */
  readonly gone?: readonly string[];
  /** Members of the image's document besides those that tell layers and times. */
  readonly config: Readonly<Record<string, unknown>>;
  /** One line for each step over the base image: `created_by`, `| comment`, `| empty` for a step without a layer. */
  readonly history: readonly string[];
  /** Only where it is one that the build was told. */
  readonly created?: string;
}

/** Later times are those of the build. */
const NOW = Date.UTC(2015, 0, 1);

interface ImageDocument {
  readonly created?: string;
  readonly rootfs: { readonly diff_ids: readonly string[] };
  readonly history?: readonly { created_by?: string; comment?: string; author?: string; empty_layer?: boolean }[];
  readonly [key: string]: unknown;
}

interface Entry {
  readonly path: string;
  readonly line: string;
}

interface SavedImage {
  readonly Config: string;
  readonly RepoTags: readonly string[] | null;
  readonly Layers: readonly string[] | null;
}

/** Returns a record for each name in the archive but that of the base image. */
export async function readImages(archive: Buffer, base: string): Promise<ReadonlyMap<string, ImageRecord>> {
  const files = new Map((await readTar(archive)).map(({ header, content }) => [header.name, content]));
  const content = (name: string): Buffer => {
    const found = files.get(name);
    if (found === undefined) throw new Error(`the archive has no ${name}`);
    return found;
  };
  const layers = new Map<string, Promise<readonly Entry[]>>();
  const layer = (name: string): Promise<readonly Entry[]> => {
    const known = layers.get(name) ?? readLayer(content(name));
    layers.set(name, known);
    return known;
  };
  const trees = new Map<string, Promise<Tree>>([['', Promise.resolve(new Map())]]);
  /** All images have the layers of the base image, so each tree is made once. */
  const tree = (names: readonly string[]): Promise<Tree> => {
    const known = trees.get(names.join()) ?? treeOf(tree(names.slice(0, -1)), layer(names.at(-1) ?? ''));
    trees.set(names.join(), known);
    return known;
  };
  const images = JSON.parse(content('manifest.json').toString()) as readonly SavedImage[];
  const loaded = await Promise.all(
    images.map(async ({ Config, RepoTags, Layers }) => ({
      names: RepoTags ?? [],
      document: JSON.parse(content(Config).toString()) as ImageDocument,
      files: sorted(await tree(Layers ?? [])),
    })),
  );
  const below = loaded.find(({ names }) => names.includes(base));
  if (below === undefined) throw new Error(`the archive has no ${base}`);
  const records = new Map<string, ImageRecord>();
  for (const image of loaded)
    for (const name of image.names) if (name !== base) records.set(name, record(image, below));
  return records;
}

/** An image as `GET /images/NAME/json` shows it. */
export interface InspectedImage {
  readonly Architecture: string;
  readonly Author?: string;
  readonly Config: Readonly<Record<string, unknown>>;
  readonly Created?: string;
  readonly Os: string;
  readonly RootFS: { readonly Layers?: readonly string[] };
  readonly Variant?: string;
}

interface HistoryRow {
  readonly CreatedBy: string;
  readonly Comment: string;
}

/** Tells what an image without layers is. @param history as `GET /images/NAME/history` shows it. */
export function emptyRecord(image: InspectedImage, history: readonly HistoryRow[]): ImageRecord {
  const { Architecture, Author, Config, Created = '', Os, Variant } = image;
  return {
    layers: 0,
    files: [],
    config: lasting({ architecture: Architecture, author: Author, config: Config, os: Os, variant: Variant }),
    history: history
      .toReversed()
      .map(({ CreatedBy, Comment }) => stepLine({ created_by: CreatedBy, comment: Comment, empty_layer: true })),
    ...(Date.parse(Created) < NOW && { created: Created }),
  };
}

interface LoadedImage {
  readonly document: ImageDocument;
  readonly files: Tree;
}

function record({ document, files }: LoadedImage, base: LoadedImage): ImageRecord {
  const { created = '', rootfs, history = [], ...config } = document;
  const isOver = base.document.rootfs.diff_ids.every((id, i) => rootfs.diff_ids[i] === id);
  const present = isOver ? base.files : new Map<string, string>();
  const gone = [...present.keys()].filter((path) => !files.has(path));
  return {
    layers: rootfs.diff_ids.length - (isOver ? base.document.rootfs.diff_ids.length : 0),
    files: [...files].filter(([path, line]) => present.get(path) !== line).map(([, line]) => line),
    ...(gone.length > 0 && { gone }),
    config: lasting(config),
    history: history.slice(isOver ? (base.document.history?.length ?? 0) : 0).map(stepLine),
    ...(Date.parse(created) < NOW && { created }),
  };
}

const PASSING = new Set(['id', 'parent', 'container', 'container_config', 'docker_version']);

/** Leaves out what is another one in each build, and what is empty. */
function lasting(config: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const inner = Object.entries((config['config'] ?? {}) as Record<string, unknown>)
    .filter(([key, value]) => key !== 'Image' && !isNothing(value))
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  const outer = Object.entries(config).filter(([key, value]) => !PASSING.has(key) && !isNothing(value));
  return { ...Object.fromEntries(outer.toSorted(([a], [b]) => (a < b ? -1 : 1))), config: Object.fromEntries(inner) };
}

function isNothing(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    value === '' ||
    value === false ||
    (Array.isArray(value) && value.length === 0)
  );
}

function stepLine(step: NonNullable<ImageDocument['history']>[number]): string {
  const by = (step.created_by ?? '').replace(/\b(file|dir|multi):[0-9a-f]{64}/g, '$1:DIGEST');
  const author = step.author ? ` | by ${step.author}` : '';
  return `${by}${step.comment ? ` | ${step.comment}` : ''}${author}${step.empty_layer ? ' | empty' : ''}`;
}

/** Lines by path. */
type Tree = ReadonlyMap<string, string>;

/** Puts a layer over what is below it. */
async function treeOf(below: Promise<Tree>, layer: Promise<readonly Entry[]>): Promise<Tree> {
  const files = new Map(await below);
  const entries = await layer;
  const remove = (path: string, itself: boolean): void => {
    if (itself) files.delete(path);
    const start = path === '' ? '' : `${path}/`;
    for (const other of files.keys()) if (other.startsWith(start)) files.delete(other);
  };
  for (const { path } of entries) {
    const name = path.slice(path.lastIndexOf('/') + 1);
    const above = path.slice(0, Math.max(0, path.length - name.length - 1));
    if (name === '.wh..wh..opq') remove(above, false);
    else if (name.startsWith('.wh.')) remove((above === '' ? '' : `${above}/`) + name.slice('.wh.'.length), true);
  }
  for (const { path, line } of entries) {
    if (/(?:^|\/)\.wh\./.test(path)) continue;
    if (!line.includes(' directory ')) remove(path, false);
    files.set(path, line);
  }
  return files;
}

const sorted = (tree: Tree): Tree => new Map([...tree].toSorted(([a], [b]) => (a < b ? -1 : 1)));

interface TarEntry {
  readonly header: {
    readonly name: string;
    readonly type: string;
    readonly mode: number;
    readonly uid: number;
    readonly gid: number;
    readonly size: number;
    readonly mtime: Date;
    readonly linkname: string | null;
    readonly devmajor: number;
    readonly devminor: number;
    readonly pax?: Readonly<Record<string, string>> | null;
  };
  readonly content: Buffer;
}

async function readTar(bytes: Buffer): Promise<TarEntry[]> {
  const entries: TarEntry[] = [];
  const reader = extract();
  Readable.from([bytes]).pipe(reader);
  for await (const entry of reader)
    entries.push({ header: entry.header as unknown as TarEntry['header'], content: await buffer(entry) });
  return entries;
}

async function readLayer(bytes: Buffer): Promise<readonly Entry[]> {
  const entries = await readTar(bytes);
  const path = (name: string): string => name.replace(/^\.?\//, '').replace(/\/$/, '');
  return entries
    .filter(({ header }) => path(header.name) !== '')
    .map((entry) => ({ path: path(entry.header.name), line: describe(path(entry.header.name), entry) }));
}

/**
 * Says path, mode, owner, type with size and content, target or device, attributes, and the time where it is an old
 * one, which only a source can have given.
 */
function describe(path: string, { header, content }: TarEntry): string {
  const facts = [path, (header.mode & 0o7777).toString(8), `${header.uid}:${header.gid}`, header.type];
  if (header.type === 'file') facts.push(String(content.length), shortHash(content));
  if (header.linkname) facts.push(header.linkname);
  if (header.type.endsWith('-device')) facts.push(`${header.devmajor}:${header.devminor}`);
  for (const [key, value] of Object.entries(header.pax ?? {}))
    if (key.startsWith('SCHILY.xattr.')) facts.push(`${key.slice('SCHILY.xattr.'.length)}=${shortHash(value)}`);
  if (header.mtime.getTime() < NOW) facts.push(`@${Math.floor(header.mtime.getTime() / 1000)}`);
  return `${facts.join(' ')} `;
}

function shortHash(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 8);
}
