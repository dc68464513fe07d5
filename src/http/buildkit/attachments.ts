/** Documents about a build that has ended: the configuration of its image, and its provenance. */
import { randomUUID } from 'node:crypto';
import { goJson } from '../../text/go-json.js';
import type { BuildJob } from './build-jobs.js';
import type { Attachment } from './history.js';
import type { WorkerFacts } from './worker-record.js';

const CONFIG_TYPE = 'application/vnd.docker.container.image.v1+json';
const STATEMENT_TYPE = 'application/vnd.in-toto+json';
/** Version 0.2 of SLSA, which clients ask for unless they are told otherwise. */
const PREDICATE_TYPE = 'https://slsa.dev/provenance/v0.2';
const STATUS_TYPE = 'application/vnd.googeapis.google.rpc.status+proto';
/** Attributes that say nothing about the result. */
const OF_THE_HOST: ReadonlySet<string> = new Set([
  'cgroup-parent',
  'image-resolve-mode',
  'platform',
  'cache-imports',
  'filename',
]);

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
  return [
    ...(config === undefined ? [] : [{ kind: 'result' as const, mediaType: CONFIG_TYPE, bytes: config }]),
    {
      kind: 'attestation',
      mediaType: STATEMENT_TYPE,
      predicateType: PREDICATE_TYPE,
      bytes: Buffer.from(goJson(provenanceOf(job, platform))),
    },
  ];
}

/** The record has the predicate alone, without the statement around it. */
function provenanceOf(job: BuildJob, platform: WorkerFacts['platforms'][number] | undefined): object {
  const { frontendAttrs } = job.request;
  const args = Object.entries(frontendAttrs)
    .filter(([key]) => !OF_THE_HOST.has(key) && !key.startsWith('attest:'))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const isRemote = frontendAttrs['context'] !== undefined;
  const { os = '', architecture = '' } = platform ?? {};
  return {
    builder: { id: '' },
    buildType: 'https://mobyproject.org/buildkit@v1',
    invocation: {
      configSource: { entryPoint: frontendAttrs['filename'] ?? 'Dockerfile' },
      parameters: {
        frontend: 'dockerfile.v0',
        ...(args.length > 0 && { args: Object.fromEntries(args) }),
        ...(!isRemote && { locals: [{ name: 'context' }, { name: 'dockerfile' }] }),
      },
      environment: { platform: `${os}/${architecture}` },
    },
    metadata: {
      buildInvocationID: randomUUID(),
      buildStartedOn: new Date(job.startedMs).toISOString(),
      buildFinishedOn: new Date().toISOString(),
      completeness: { parameters: true, environment: true, materials: false },
      reproducible: false,
    },
  };
}
