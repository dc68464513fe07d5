/**
 * The images that are here, in memory. Several may have one ID, that of the index which they came with: each is for
 * another platform, and together they are one image to clients.
 */
import type { Image } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import { hostPlatform, preference } from '../registry/platform.js';
import { ImageChildren } from './children.js';
import { type ImageEntry, imageOf } from './image-entry.js';
import { platformOf } from './platform.js';

const NONE: readonly ImageEntry[] = [];

export class ImageEntries {
  /** By ID. The one that suits this machine best is the first, and the others follow in the order of the index. */
  readonly #sets = new Map<Digest, readonly ImageEntry[]>();
  readonly #byKey = new Map<Digest, ImageEntry>();
  readonly #children = new ImageChildren();
  /** The published values, by ID and for each platform; they are made anew when names, metadata or platforms change. */
  readonly #images = new Map<Digest, Image>();
  readonly #platforms = new Map<ImageEntry, Image>();

  /** @param namesOf returns the canonical names of an ID in the order in which clients see them. */
  constructor(private readonly namesOf: (id: Digest) => readonly string[]) {}

  add(entry: ImageEntry): void {
    this.changed(entry.id);
    this.#byKey.set(entry.key, entry);
    this.#arrange(entry.id, [...this.of(entry.id), entry]);
  }

  remove(entry: ImageEntry): void {
    this.changed(entry.id);
    this.#byKey.delete(entry.key);
    this.#children.remove(entry);
    const others = this.of(entry.id).filter((other) => other !== entry);
    this.#arrange(entry.id, others);
  }

  #arrange(id: Digest, entries: readonly ImageEntry[]): void {
    for (const entry of entries) this.#children.add(entry);
    if (entries.length === 0) this.#sets.delete(id);
    else this.#sets.set(id, entries.length === 1 ? entries : bestFirst(entries));
  }

  has(id: Digest): boolean {
    return this.#sets.has(id);
  }

  ids(): Iterable<Digest> {
    return this.#sets.keys();
  }

  /** Returns the names of the records of all images. */
  keys(): Iterable<Digest> {
    return this.#byKey.keys();
  }

  hasKey(key: Digest): boolean {
    return this.#byKey.has(key);
  }

  /** Returns all images of an ID, the one that suits this machine best first. */
  of(id: Digest): readonly ImageEntry[] {
    return this.#sets.get(id) ?? NONE;
  }

  /** Returns the image of an ID that has this configuration. */
  find(id: Digest, configDigest: Digest): ImageEntry | undefined {
    return this.of(id).find((entry) => entry.configDigest === configDigest);
  }

  withConfig(configDigest: Digest): ImageEntry | undefined {
    for (const entry of this.#byKey.values()) if (entry.configDigest === configDigest) return entry;
    return undefined;
  }

  /** Returns the images that were made here from this one. */
  childrenOf(id: Digest): readonly Digest[] {
    return this.#children.of(id);
  }

  /** Forgets the published values of an ID. */
  changed(id: Digest): void {
    this.#images.delete(id);
    for (const entry of this.of(id)) this.#platforms.delete(entry);
  }

  image(id: Digest): Image | undefined {
    const known = this.#images.get(id);
    if (known) return known;
    const entries = this.of(id);
    const [best] = entries;
    if (!best) return undefined;
    const own = this.imageOf(best);
    const image =
      entries.length === 1
        ? own
        : Object.freeze({ ...own, platforms: inOrder(entries).map((entry) => this.imageOf(entry)) });
    this.#images.set(id, image);
    return image;
  }

  /** Returns the image of one platform. */
  imageOf(entry: ImageEntry): Image {
    const known = this.#platforms.get(entry);
    if (known) return known;
    const { id } = entry;
    const tagged = this.of(id).flatMap(({ metadata }) => metadata.lastTagTime ?? []);
    const image = imageOf(entry, this.namesOf(id), tagged.sort().at(-1));
    if (this.#byKey.get(entry.key) === entry) this.#platforms.set(entry, image);
    return image;
  }
}

function positionOf({ metadata: { published } }: ImageEntry): number {
  return published?.manifests.findIndex(({ digest }) => digest === published.own) ?? 0;
}

function inOrder(entries: readonly ImageEntry[]): readonly ImageEntry[] {
  return entries.toSorted((a, b) => positionOf(a) - positionOf(b));
}

function bestFirst(entries: readonly ImageEntry[]): readonly ImageEntry[] {
  const rank = (entry: ImageEntry): number => preference(hostPlatform(), platformOf(entry)) ?? Infinity;
  const ordered = inOrder(entries);
  const best = ordered.reduce((chosen, entry) => (rank(entry) < rank(chosen) ? entry : chosen));
  return [best, ...ordered.filter((entry) => entry !== best)];
}
