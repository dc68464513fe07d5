/** Attests of the images of a build how they were made. */
import type { Attestation } from '../../build/outputs/attestation.js';
import type { SetOptions } from '../../build/outputs/image-set.js';
import { provenance } from '../../build/outputs/provenance.js';
import { packageUrl } from '../../images/package-url.js';
import { parseReference } from '../../images/reference.js';
import type { BuildMaterial } from '../../ports/build.js';
import { formatPlatform, hostPlatform } from '../../registry/platform.js';
import { provenanceOptions, scanOrder } from './attest-options.js';
import type { LoadedDockerfile } from './dockerfile-source.js';
import type { OrderedBuild } from './ordered-build.js';

/** A statement about an image without a name is about this one. */
const UNNAMED = '_';
const PROVENANCE_FILE = 'provenance.json';

export interface BuildOrigin {
  readonly dockerfile: LoadedDockerfile;
  /** The context, when it was at an address. */
  readonly context: BuildMaterial | undefined;
}

/**
 * Returns what attests; nothing where the client wants no attestation.
 * @param names of the image, such as `docker.io/library/app:1`.
 * @throws EngineError for what cannot be attested.
 */
export function attesting(
  { job, order }: OrderedBuild,
  { dockerfile, context }: BuildOrigin,
  names: readonly string[],
): Pick<SetOptions, 'attest'> {
  const options = provenanceOptions(order.attrs);
  if (options === undefined && scanOrder(order.attrs) === undefined) return {};
  const facts = {
    frontendAttrs: job.request.frontendAttrs,
    platform: formatPlatform({ ...hostPlatform(), variant: '' }),
    startedMs: job.startedMs,
    dockerfile,
    ...(context && { context }),
  };
  return {
    attest: (result) => {
      const urls = names.map((name) => packageUrl(parseReference(name), result.platform));
      const subjects = urls.length === 0 ? [UNNAMED] : urls;
      // It is about this image, whatever its program says that it is about.
      const scanned = result.scanned.map(({ name: fileName, predicateType, predicate }): Attestation => ({
        predicateType,
        predicate: { kind: 'file', ...predicate },
        subjects,
        fileName,
      }));
      if (options === undefined) return scanned;
      const { predicateType, predicate } = provenance({ ...facts, recipe: result.recipe() }, options);
      const made = { predicateType, predicate: { kind: 'value', value: predicate }, subjects } as const;
      return [...scanned, { ...made, fileName: PROVENANCE_FILE }];
    },
  };
}
