/** Contract of what transfers tell of their progress: facts, of which `src/http/api` makes the lines of a stream. */
import type { OciDescriptor } from './published-image.js';

export type ProgressFact =
  | { readonly kind: 'line'; readonly text: string; readonly id?: string }
  /** A layer is in this state now. */
  | { readonly kind: 'state'; readonly status: string; readonly id: string }
  /** So many bytes of a layer are done; a total of 0 is not known. */
  | {
      readonly kind: 'bytes';
      readonly status: string;
      readonly id: string;
      readonly current: number;
      readonly total: number;
    }
  | { readonly kind: 'pushed'; readonly tag: string; readonly digest: string; readonly sizeBytes: number }
  /** One manifest was pushed alone, because not all of its index is here. */
  | { readonly kind: 'pushed-alone'; readonly index: OciDescriptor; readonly manifest: OciDescriptor }
  /** The work failed after its first line; nothing more follows. */
  | { readonly kind: 'failed'; readonly message: string };

/** A record of the typed form of a pull's progress; docs/registries.md names its members. */
export type ProgressRecord = Readonly<Record<string, unknown>>;

/** Makes text of progress, once for all its readers. */
export interface ProgressEncoders {
  readonly classic: (fact: ProgressFact) => string;
  readonly typed: (record: ProgressRecord) => string;
}
