/** The durable truth about one container: what is on disk, and at the same time the view that reads are served from. */
import type { HealthState } from './life/health-state.js';
import type { ContainerConfig, HostConfig, MountPoint, Ulimit } from '../../ports/container.js';
import type { Endpoint, EndpointNames, PublishedPort } from '../../ports/network.js';
import type { OciDescriptor } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';
import type { Labels } from '../../runtime/selinux/selinux.js';

/** `starting` is on disk only while a start is under way; clients see what was there before. */
export type ContainerStatus =
  | 'created'
  | 'starting'
  | 'running'
  | 'paused'
  | 'restarting'
  | 'removing'
  | 'exited'
  | 'dead';

/** The zero time of the Engine API: an instant that never came. */
export const NEVER = '0001-01-01T00:00:00Z';

export interface ContainerState {
  readonly status: ContainerStatus;
  /** Host pid of init, 0 when there is none. */
  readonly pid: number;
  readonly exitCode: number;
  readonly error: string;
  readonly oomKilled: boolean;
  /** RFC 3339 with nanoseconds, or NEVER. */
  readonly startedAt: string;
  readonly finishedAt: string;
  /** Present once a container with a health check was started. */
  readonly health?: HealthState;
}

/** The client's request for one network, and the endpoint that the container has there while it runs. */
export interface NetworkAttachment {
  readonly request: EndpointRequest;
  readonly endpoint?: Endpoint;
  /** When it joined (RFC 3339): a crash may have come before that was told. */
  readonly joined?: string;
  /** The endpoint that a running container is just getting or losing: a crash must not leave half of it. */
  readonly pending?: EndpointNames;
  /** Set with `pending` where it is losing it: nobody may have been told of that either. */
  readonly leaving?: { readonly since: string; readonly networkId: string; readonly networkName: string };
}

/** `EndpointSettings` of the Engine API as far as clients may set them. */
export interface EndpointRequest {
  readonly IPAMConfig?: {
    readonly IPv4Address?: string;
    readonly IPv6Address?: string;
    readonly LinkLocalIPs?: readonly string[];
  } | null;
  readonly Links?: readonly string[] | null;
  readonly Aliases?: readonly string[] | null;
  readonly MacAddress?: string;
  readonly DriverOpts?: Readonly<Record<string, string>> | null;
  readonly GwPriority?: number;
}

/** These options of the daemon apply to containers that are created while they are set, and to no others. */
export interface CreationDefaults {
  readonly ulimits: readonly Ulimit[];
  readonly noNewPrivileges: boolean;
  readonly init: boolean;
}

export interface ContainerRecord {
  readonly version: 1;
  readonly id: string;
  /** Name with the leading slash. */
  readonly name: string;
  /** RFC 3339 with nanoseconds. */
  readonly created: string;
  readonly path: string;
  readonly args: readonly string[];
  readonly image: Digest;
  readonly topLayer: Digest | undefined;
  /** Descriptor of the image's manifest; absent unless the image came from a registry. */
  readonly imageManifest?: OciDescriptor;
  readonly config: ContainerConfig;
  /** This is the configuration as the client gave it; `effectiveHostConfig` returns the one in force. */
  readonly hostConfig: HostConfig;
  readonly defaults?: CreationDefaults;
  /** Attachments by network name; empty for host mode and `container:` mode. */
  readonly networks: Readonly<Record<string, NetworkAttachment>>;
  /** Containers of the default bridge that this one knows by names of its own. */
  readonly links?: readonly { readonly id: string; readonly alias: string }[];
  readonly mounts: readonly MountPoint[];
  /** Ports that are really bound while the container runs. */
  readonly ports: readonly PublishedPort[];
  readonly state: ContainerState;
  readonly restartCount: number;
  /** A user stopped the container: with `unless-stopped` it stays down at the next start of the daemon. */
  readonly manuallyStopped: boolean;
  readonly logPath: string;
  /** The AppArmor profile of the last start; undefined where that was not in effect. */
  readonly appArmorProfile?: string | undefined;
  /** SELinux labels; absent if containers had none when it was created. */
  readonly labels?: Labels | undefined;
}

/** Returns true while processes of the container may run. */
export function isRunning(record: ContainerRecord): boolean {
  return record.state.status === 'running' || record.state.status === 'paused' || record.state.status === 'restarting';
}

/** Returns a copy with parts of the state changed. */
export function withState(record: ContainerRecord, state: Partial<ContainerState>): ContainerRecord {
  return { ...record, state: { ...record.state, ...state } };
}

/** Returns how many milliseconds the last run took, once it has ended. */
export function ranMs({ state: { startedAt, finishedAt } }: ContainerRecord): number {
  return Math.max(0, Date.parse(finishedAt) - Date.parse(startedAt));
}

/** Returns the images that a container is made of: its own, and those mounted in it. */
export function imagesOf({ image, mounts }: Pick<ContainerRecord, 'image' | 'mounts'>): string[] {
  return [image, ...mounts.flatMap(({ Type, Source }) => (Type === 'image' ? [Source] : []))];
}

/** Returns how many containers are made from each image, by its ID. An image that is only mounted is not counted. */
export function containersPerImage(records: readonly Pick<ContainerRecord, 'image'>[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { image } of records) counts.set(image, (counts.get(image) ?? 0) + 1);
  return counts;
}

/** Returns the topmost layer of each image that a container is made of. */
export function topLayersOf({ topLayer, mounts }: Pick<ContainerRecord, 'topLayer' | 'mounts'>): Digest[] {
  return [topLayer, ...mounts.map(({ TopLayer }) => TopLayer)].filter((layer) => layer !== undefined);
}
