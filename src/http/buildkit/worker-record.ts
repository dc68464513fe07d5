/** How this daemon describes itself as a builder. Clients offer what labels and capabilities promise, and no more. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { GcRule } from '../../build/cache/gc-rules.js';
import type { GcPolicySchema, WorkerRecordSchema } from './proto/gen/common_pb.js';

/** The version of BuildKit whose protocol this speaks. */
export const BUILDKIT_VERSION = { package: 'github.com/moby/buildkit', version: 'v0.25.2', revision: '' };

const NANOSECONDS_PER_MS = 1_000_000n;

const FRONTEND_CAPS = [
  'frontend.caps',
  'frontend.inputs',
  'gateway.evaluate',
  'gateway.solve.metadata',
  'importcaches',
  'proto.refarray',
  'readdir',
  'readfile',
  'reference.output',
  'return',
  'returnmap',
  'solve.base',
  'statfile',
];

const LLB_CAPS = [
  'exporter.multiple',
  'exporter.image.attestations',
  'source.git',
  'source.git.checksum',
  'source.git.fullurl',
  'source.git.httpauth',
  'source.git.keepgitdir',
  'source.git.knownsshhosts',
  'source.git.mountsshsock',
  'source.http',
  'source.http.checksum',
  'source.image',
  'source.local',
  'source.local.unique',
  'source.local.sessionid',
  'source.local.includepatterns',
  'source.local.followpaths',
  'source.local.excludepatterns',
  'source.local.sharedkeyhint',
  'exec.meta.base',
  'exec.meta.network',
  'exec.mount.bind',
  'exec.mount.cache',
  'exec.mount.cache.sharing',
  'exec.mount.secret',
  'exec.mount.ssh',
  'exec.mount.tmpfs',
  'exec.secretenv',
  'file.base',
  'constraints',
  'gc.freespacefilter',
  'platform',
  'meta.ignorecache',
  'meta.description',
];

export function frontendCaps(): { id: string; enabled: boolean }[] {
  return FRONTEND_CAPS.map((id) => ({ id, enabled: true }));
}

export function llbCaps(): { id: string; enabled: boolean }[] {
  return LLB_CAPS.map((id) => ({ id, enabled: true }));
}

const LABELS = 'org.mobyproject.buildkit.worker';

export interface WorkerFacts {
  /** Stays the same for the life of the data directory. */
  readonly id: string;
  readonly platforms: readonly { readonly os: string; readonly architecture: string; readonly variant?: string }[];
  /** Name of what keeps the layers, such as `overlay2`. */
  readonly snapshotter: string;
  /** By which the build cache is kept small. */
  readonly gcRules: readonly GcRule[];
  /** The address that `host-gateway` stands for, if there is one. */
  readonly hostGateway: () => string | undefined;
}

export function workerRecord(facts: WorkerFacts): MessageInitShape<typeof WorkerRecordSchema> {
  const gateway = facts.hostGateway();
  return {
    id: facts.id,
    labels: {
      // Clients offer archives of images and direct pushes only where this label is.
      [`${LABELS}.snapshotter`]: facts.snapshotter,
      ...(gateway !== undefined && { [`${LABELS}.moby.host-gateway-ip`]: gateway }),
    },
    platforms: facts.platforms.map(({ os, architecture, variant }) => ({ os, architecture, variant: variant ?? '' })),
    gcPolicy: facts.gcRules.map(gcPolicy),
    buildkitVersion: BUILDKIT_VERSION,
  };
}

function gcPolicy(rule: GcRule): MessageInitShape<typeof GcPolicySchema> {
  return {
    all: rule.all,
    keepDuration: BigInt(Math.round(rule.keepDurationMs)) * NANOSECONDS_PER_MS,
    // Clients show them so for dockerd.
    filters: rule.filters.length === 0 ? [] : [rule.filters.join(',')],
    reservedSpace: BigInt(rule.reservedSpace),
    maxUsedSpace: BigInt(rule.maxUsedSpace),
    minFreeSpace: BigInt(rule.minFreeSpace),
  };
}

type HostPlatform = WorkerFacts['platforms'][number];

/** Returns the platforms that a host runs, its own first: a processor of a high level runs what lower ones do. */
export function hostPlatforms({ os, architecture, variant = '' }: HostPlatform): HostPlatform[] {
  if (architecture !== 'amd64') return [{ os, architecture, variant }];
  const levels = Array.from({ length: Number(variant.slice(1)) || 1 }, (_, index) => index + 1);
  const own = levels.map((level) => ({ os, architecture, variant: level === 1 ? '' : `v${level}` }));
  return [...own, { os, architecture: '386' }];
}
