/**
 * The second form of a pull's progress: records, each either about one layer of the image or about the pull as a whole.
 * docs/registries.md describes it for its readers. This file has the records about the pull as a whole.
 */
import { EngineError, messageOf } from '../../errors/engine-error.js';
import { canonicalString } from '../../images/reference.js';
import type { ProgressRecord } from '../../ports/progress.js';
import { factsOf } from '../../registry/failure.js';
import type { Detail } from './layer-phases.js';
import type { PullJob } from './pull.messages.js';

/** Returns the first record: what was found where. */
export function resolvedRecord(job: PullJob): ProgressRecord {
  const { image, hosts } = job.located;
  const total = image.layers.reduce((sum, { blob }) => sum + blob.sizeBytes, 0);
  return pullRecord(job, 'resolve', { endpoint: hosts[0]?.endpoints[0]?.url, layers: image.layers.length, total });
}

/** Returns the last record. */
export function finalRecord(job: PullJob, end: { readonly isNew: boolean; readonly error?: unknown }): ProgressRecord {
  return end.error === undefined
    ? pullRecord(job, 'done', { isNew: end.isNew, warnings: job.located.image.warnings })
    : pullRecord(job, 'failed', { error: errorDetail(end.error) });
}

function pullRecord({ pull, located }: PullJob, phase: 'resolve' | 'done' | 'failed', detail: Detail): ProgressRecord {
  const { imageId, image } = located;
  const { digest } = image;
  return { kind: 'pull', phase, reference: canonicalString(pull.reference), digest, imageId, ...detail };
}

/** Returns the description of a failure in a record. */
export function errorDetail(error: unknown): Detail {
  const { retryable } = factsOf(error);
  return {
    message: messageOf(error),
    ...(error instanceof EngineError ? { kind: error.kind, code: error.code } : {}),
    retryable: retryable === true,
  };
}
