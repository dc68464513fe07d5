/** Selects the images that a list or a prune is about. */
import type { Image } from '../ports/images.js';
import { compileGlob, type Glob } from '../text/glob.js';
import { WorkBudget } from '../text/work-budget.js';
import { familiarName, familiarString, parseReference } from './reference.js';
import type { FileImageStore } from './store.js';

export interface ImageSelection {
  /** If true, untagged images that others were made from are listed, too. */
  readonly all: boolean;
  readonly dangling: boolean | undefined;
  /** Names of images to compare creation times with. */
  readonly before: readonly string[];
  readonly since: readonly string[];
  /** Milliseconds since the epoch: only images that were created before are selected. */
  readonly untilMs: number | undefined;
  /** Shell patterns for familiar names. */
  readonly reference: readonly string[];
  readonly matchesLabels: (labels: Readonly<Record<string, string>> | null | undefined) => boolean;
}

/** An image with the names that the selection lets through. */
export interface SelectedImage {
  readonly image: Image;
  readonly repoTags: readonly string[];
  readonly repoDigests: readonly string[];
}

/** Returns milliseconds since the epoch; 0 for an image without a date. */
export function createdMs({ config }: Image): number {
  const at = config.created === undefined ? Number.NaN : Date.parse(config.created);
  return Number.isNaN(at) ? 0 : at;
}

/** Returns the selected images, newest first. Throws not-found when `before` or `since` name no image. */
export function selectImages(store: FileImageStore, selection: ImageSelection): SelectedImage[] {
  const before = Math.min(...selection.before.map((name) => createdMs(store.resolve(name))));
  const since = Math.max(...selection.since.map((name) => createdMs(store.resolve(name))));
  const budget = new WorkBudget('invalid filter');
  const patterns = selection.reference.map((text) => compileGlob(text, budget));
  const images = store.list();
  const parents = new Set(images.map(({ parent }) => parent).filter((parent) => parent !== ''));

  const selected: SelectedImage[] = [];
  for (const image of images) {
    const created = createdMs(image);
    if (created >= before || created <= since || created >= (selection.untilMs ?? Infinity)) continue;
    if (!selection.matchesLabels(image.config.config?.Labels)) continue;
    if (selection.dangling === true && (parents.has(image.id) || image.repoTags.length > 0)) continue;
    const passes = (name: string): boolean =>
      patterns.length === 0 || patterns.some((pattern) => matches(pattern, name));
    const repoTags = image.repoTags.filter(passes);
    const repoDigests = image.repoDigests.filter(passes);
    if (repoTags.length === 0 && repoDigests.length === 0) {
      const isHidden = patterns.length > 0 || selection.dangling === false || (!selection.all && parents.has(image.id));
      if (isHidden) continue;
    }
    selected.push({ image, repoTags, repoDigests });
  }
  return selected.sort((a, b) => createdMs(b.image) - createdMs(a.image));
}

function matches(pattern: Glob, name: string): boolean {
  const reference = parseReference(name);
  return pattern(familiarString(reference)) || pattern(familiarName(reference));
}
