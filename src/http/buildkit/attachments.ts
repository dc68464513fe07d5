/** Documents about a build that has ended: the configuration of its image, and its provenance. */
import { provenance } from '../../build/outputs/provenance.js';
import { goJson } from '../../text/go-json.js';
import type { BuildJob } from './build-jobs.js';
import type { Attachment } from './history.js';
import type { WorkerFacts } from './worker-record.js';

const CONFIG_TYPE = 'application/vnd.docker.container.image.v1+json';
const STATEMENT_TYPE = 'application/vnd.in-toto+json';
const STATUS_TYPE = 'application/vnd.googeapis.google.rpc.status+proto';

/** @param status is google.rpc.Status. Clients show the lines of a Dockerfile that are in it. */
export function errorAttachment(status: Buffer): Attachment {
  return { kind: 'error', mediaType: STATUS_TYPE, bytes: status };
}

export async function attachmentsOf(
  job: BuildJob,
  platform: WorkerFacts['platforms'][number] | undefined,
): Promise<Attachment[]> {
  const outcome = await job.outcome;
  if (outcome === undefined) return [];
  const { config } = outcome;
  const materials = outcome.materials?.() ?? [];
  const { os = '', architecture = '' } = platform ?? {};
  const facts = {
    frontendAttrs: job.request.frontendAttrs,
    platform: `${os}/${architecture}`,
    startedMs: job.startedMs,
    ...(materials.length > 0 && { recipe: { materials, steps: [], secrets: [], ssh: [] } }),
  };
  const options = { mode: 'max', version: 'v0.2', builderId: '', isReproducible: false } as const;
  // The record has the predicate alone, without the statement around it.
  const { predicateType, predicate } = provenance(facts, options);
  const bytes = Buffer.from(goJson(predicate));
  return [
    ...(config === undefined ? [] : [{ kind: 'result' as const, mediaType: CONFIG_TYPE, bytes: config }]),
    { kind: 'attestation', mediaType: STATEMENT_TYPE, predicateType, bytes },
  ];
}
