/** Annotations that a client wants: exporter attributes such as `annotation-index[linux/amd64].key`. */

export type AnnotationPlace = 'manifest' | 'manifest-descriptor' | 'index' | 'index-descriptor';

interface Annotation {
  readonly place: AnnotationPlace;
  /** undefined: for all platforms. */
  readonly platform: string | undefined;
  readonly key: string;
  readonly value: string;
}

const ATTRIBUTE = /^annotation(-manifest-descriptor|-index-descriptor|-manifest|-index)?(?:\[([^\]]*)\])?\.(.+)$/s;

export class ImageAnnotations {
  readonly #all: readonly Annotation[];

  constructor(attributes: ReadonlyMap<string, string>) {
    this.#all = [...attributes].flatMap(([name, value]) => {
      const [, place = '-manifest', platform, key] = ATTRIBUTE.exec(name) ?? [];
      return key === undefined ? [] : [{ place: place.slice(1) as AnnotationPlace, platform, key, value }];
    });
  }

  get isEmpty(): boolean {
    return this.#all.length === 0;
  }

  /** @param platform undefined: only those that are meant for no platform in particular. */
  at(place: AnnotationPlace, platform?: string): Record<string, string> {
    const found = this.#all.filter((one) => one.place === place && [undefined, platform].includes(one.platform));
    return Object.fromEntries(found.map(({ key, value }) => [key, value]));
  }
}
