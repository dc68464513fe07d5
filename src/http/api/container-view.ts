/** Containers as the Engine API shows them: list items and inspect. Texts are cached per immutable record. */
import type { AtLeast } from './at-least.js';
import type { ContainerRecord, NetworkAttachment } from '../../actors/container/container.record.js';
import { isRunning } from '../../actors/container/container.record.js';
import { effectiveHostConfig } from '../../actors/container/create/effective-host-config.js';
import type { HealthState } from '../../actors/container/life/health-state.js';
import type { MountPoint } from '../../ports/container.js';
import { isLong, jsonPieces } from '../../text/json-pieces.js';
import { ownMember } from '../../text/own-member.js';
import { portList, portMap } from './container-ports.js';

/** The view needs these facts beside the record. */
export interface ViewContext {
  /** Returns true while the reference that the container was created from still names its image. */
  imageStillNamed(record: ContainerRecord): boolean;
  graphData(id: string): { readonly Name: string; readonly Data: Readonly<Record<string, string>> | null };
  /** Returns the directory of the container's files, which may be another container's. */
  filesDir(record: ContainerRecord): string;
  /** Returns the path of the network namespace. */
  sandboxKey(record: ContainerRecord): string;
  /** Returns how many lines of its latest run were not logged. */
  droppedLines(id: string): number;
  /** Links to other containers of the default bridge. */
  readonly links: (record: ContainerRecord) => readonly string[] | null;
  /** Returns the other names of a container, which links give it. */
  linkNames(id: string): readonly string[];
  /** Returns the ids of execs that have not ended. */
  execIds(id: string): readonly string[];
}

/** Returns the status text, which many scripts parse: `Up 5 minutes`, `Exited (0) 2 hours ago`. */
export function statusText(record: ContainerRecord, nowMs: number): string {
  const { state } = record;
  switch (state.status) {
    case 'running':
      return `Up ${humanDuration(nowMs - Date.parse(state.startedAt))}${healthText(record)}`;
    case 'paused':
      return `Up ${humanDuration(nowMs - Date.parse(state.startedAt))} (Paused)`;
    case 'restarting':
      return `Restarting (${state.exitCode}) ${humanDuration(nowMs - Date.parse(state.finishedAt))} ago`;
    case 'removing':
      return 'Removal In Progress';
    case 'dead':
      return 'Dead';
    case 'exited':
      return `Exited (${state.exitCode}) ${humanDuration(nowMs - Date.parse(state.finishedAt))} ago`;
    default:
      return 'Created';
  }
}

function healthText({ state: { health } }: ContainerRecord): string {
  if (!health) return '';
  return health.status === 'starting' ? ' (health: starting)' : ` (${health.status})`;
}

/** Renders a duration in the coarse words that clients know. */
export function humanDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 1) return 'Less than a second';
  if (seconds === 1) return '1 second';
  if (seconds < 60) return `${seconds} seconds`;
  const minutes = Math.floor(seconds / 60);
  if (minutes === 1) return 'About a minute';
  if (minutes < 60) return `${minutes} minutes`;
  const hours = Math.round(seconds / 3600);
  if (hours === 1) return 'About an hour';
  if (hours < 48) return `${hours} hours`;
  if (hours < 24 * 14) return `${Math.floor(hours / 24)} days`;
  if (hours < 24 * 60) return `${Math.floor(hours / 24 / 7)} weeks`;
  if (hours < 24 * 365 * 2) return `${Math.floor(hours / 24 / 30)} months`;
  return `${Math.floor(hours / 24 / 365)} years`;
}

interface ItemParts {
  /** JSON of an item up to and including `"Status":`; `tail` begins with the comma after it. */
  readonly head: string;
  readonly tail: string;
}

/**
 * A client knows these members of list items: `plain` before 1.46, which added annotations; `full` since 1.48, with the
 * manifest of the image.
 */
export type ItemMembers = 'plain' | 'annotated' | 'full';

const items: Readonly<Record<ItemMembers, WeakMap<ContainerRecord, ItemParts>>> = {
  plain: new WeakMap(),
  annotated: new WeakMap(),
  full: new WeakMap(),
};

/** Renders one element of GET /containers/json as JSON text. Only the status text is made anew on each call. */
export function listItemJson(
  record: ContainerRecord,
  context: ViewContext,
  members: ItemMembers,
  nowMs: number,
  size?: { rw: number; rootFs: number },
): string {
  let parts = items[members].get(record);
  // These may change without the record: whether the tag still points to the image, and who links to the container.
  // Such items are not cached.
  const named = context.imageStillNamed(record);
  const others = context.linkNames(record.id);
  const isPlain = named && others.length === 0;
  if (!parts || !isPlain) {
    parts = itemParts(record, named, others, members);
    if (isPlain) items[members].set(record, parts);
  }
  const sizes = size ? `${size.rw === 0 ? '' : `"SizeRw":${size.rw},`}"SizeRootFs":${size.rootFs},` : '';
  return `${parts.head}${sizes}"Status":${JSON.stringify(statusText(record, nowMs))}${parts.tail}`;
}

function mountObject({ Spec: _spec, TopLayer: _topLayer, ...shown }: MountPoint): MountPoint {
  return shown;
}

function itemParts(
  record: ContainerRecord,
  named: boolean,
  linkNames: readonly string[],
  members: ItemMembers,
): ItemParts {
  const { imageManifest, hostConfig } = record;
  const head = JSON.stringify({
    Id: record.id,
    Names: [record.name, ...linkNames].sort(),
    Image: named ? record.config.Image : record.image,
    ImageID: record.image,
    ...(imageManifest && members === 'full' ? { ImageManifestDescriptor: imageManifest } : {}),
    Command: commandText(record),
    Created: Math.floor(Date.parse(record.created) / 1000),
    Ports: portList(record),
    Labels: record.config.Labels,
    State: shownStatus(record),
  });
  const tail = JSON.stringify({
    HostConfig: {
      NetworkMode: hostConfig.NetworkMode,
      ...(hostConfig.Annotations && members !== 'plain' ? { Annotations: hostConfig.Annotations } : {}),
    },
    NetworkSettings: { Networks: networkMap(record, listedEndpoint) },
    Mounts: record.mounts.map(mountObject),
  });
  return { head: `${head.slice(0, -1)},`, tail: `,${tail.slice(1)}` };
}

function commandText(record: ContainerRecord): string {
  const shown = record.args.map((arg) => (/\s/.test(arg) ? `'${arg}'` : arg));
  return [record.path, ...shown].join(' ');
}

/** Returns the status word of State and list; a start under way shows what was there before it. */
export function shownStatus(record: ContainerRecord): string {
  if (record.state.status !== 'starting') return record.state.status;
  return record.state.finishedAt.startsWith('0001') ? 'created' : 'exited';
}

/**
 * Returns the networks of a container as others see them: a container that has ended is on none any more, even while it
 * is being released.
 */
function attachments(record: ContainerRecord): ContainerRecord['networks'] {
  if (isRunning(record)) return record.networks;
  return Object.fromEntries(Object.entries(record.networks).map(([name, { request }]) => [name, { request }]));
}

function networkMap(
  record: ContainerRecord,
  render: (attachment: NetworkAttachment) => Record<string, unknown> = endpointSettings,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(attachments(record)).map(([name, attachment]) => [name, render(attachment)]),
  );
}

/** Renders an endpoint as lists have it: where the container is, not what was asked for. */
function listedEndpoint(attachment: NetworkAttachment): Record<string, unknown> {
  const { IPAMConfig } = attachment.request;
  const { LinkLocalIPs: _unlisted, ...addresses } = IPAMConfig ?? {};
  return {
    ...endpointSettings(attachment),
    IPAMConfig: IPAMConfig ? addresses : null,
    Links: null,
    Aliases: null,
    DriverOpts: null,
    DNSNames: null,
  };
}

/** Networks on which containers do not find each other by name. */
const NAMELESS = new Set(['bridge', 'host', 'none']);

/** Renders `EndpointSettings`: the request, and what the container has while it runs. */
export function endpointSettings({ request, endpoint }: NetworkAttachment): Record<string, unknown> {
  return {
    IPAMConfig: request.IPAMConfig ?? null,
    Links: request.Links ?? null,
    Aliases: request.Aliases ?? null,
    MacAddress: endpoint?.macAddress ?? request.MacAddress ?? '',
    DriverOpts: request.DriverOpts ?? null,
    GwPriority: request.GwPriority ?? 0,
    NetworkID: endpoint?.networkId ?? '',
    EndpointID: endpoint?.endpointId ?? '',
    Gateway: endpoint?.gateway ?? '',
    IPAddress: endpoint?.ipv4 ?? '',
    IPPrefixLen: endpoint?.ipv4PrefixLength ?? 0,
    IPv6Gateway: endpoint?.ipv6Gateway ?? '',
    GlobalIPv6Address: endpoint?.ipv6 ?? '',
    GlobalIPv6PrefixLen: endpoint?.ipv6PrefixLength ?? 0,
    DNSNames: endpoint && !NAMELESS.has(endpoint.networkName) ? [...endpoint.dnsNames] : null,
  };
}

function healthView({ status, failingStreak, log }: HealthState): unknown {
  return {
    Status: status,
    FailingStreak: failingStreak,
    Log: log.map(({ start, end, exitCode, output }) => ({
      Start: start,
      End: end,
      ExitCode: exitCode,
      Output: output,
    })),
  };
}

const inspected = new WeakMap<ContainerRecord, string>();

/** Returns a record without what came with later versions of the API. */
export function asOf(record: ContainerRecord, atLeast: AtLeast): ContainerRecord {
  if (atLeast(1, 48)) return record;
  const { imageManifest: _newer, ...older } = record;
  return atLeast(1, 45) ? older : withOldAliases(older);
}

/** Returns a record as clients before API 1.45 know it: Aliases has the names that the container has anyway. */
function withOldAliases(record: ContainerRecord): ContainerRecord {
  const names = [...new Set([record.id.slice(0, 12), record.config.Hostname])].filter((name) => name !== '');
  const networks = Object.entries(record.networks).map(([network, attachment]): [string, NetworkAttachment] => {
    if (NAMELESS.has(network)) return [network, attachment];
    const aliases = attachment.request.Aliases ?? [];
    return [
      network,
      {
        ...attachment,
        request: { ...attachment.request, Aliases: [...aliases, ...names.filter((name) => !aliases.includes(name))] },
      },
    ];
  });
  return { ...record, networks: Object.fromEntries(networks) };
}

/** Renders GET /containers/{id}/json as JSON text; in pieces when the container has a long configuration. */
export function inspectJson(
  record: ContainerRecord,
  context: ViewContext,
  size?: { rw: number; rootFs: number },
): string | Iterator<string> {
  // Execs and lost lines come without a new record, so a container that has some is rendered anew.
  const isKept = !size && context.execIds(record.id).length === 0 && context.droppedLines(record.id) === 0;
  const known = isKept ? inspected.get(record) : undefined;
  if (known !== undefined) return known;
  const shown = inspectObject(record, context, size);
  if (isLong(shown)) return jsonPieces(shown);
  const text = JSON.stringify(shown);
  if (isKept) inspected.set(record, text);
  return text;
}

function inspectObject(record: ContainerRecord, context: ViewContext, size?: { rw: number; rootFs: number }): unknown {
  const { state } = record;
  const dir = context.filesDir(record);
  const execIds = context.execIds(record.id);
  const networks = attachments(record);
  const { endpoint: bridge, request: onBridge } = networks['bridge'] ?? {};
  const hasSandbox = Object.values(networks).some(({ endpoint }) => endpoint !== undefined);
  return {
    Id: record.id,
    Created: record.created,
    Path: record.path,
    Args: record.args,
    State: {
      Status: shownStatus(record),
      Running: isRunning(record),
      Paused: state.status === 'paused',
      Restarting: state.status === 'restarting',
      OOMKilled: state.oomKilled,
      Dead: state.status === 'dead',
      Pid: state.pid,
      ExitCode: state.exitCode,
      Error: state.error,
      StartedAt: state.startedAt,
      FinishedAt: state.finishedAt,
      ...(state.health ? { Health: healthView(state.health) } : {}),
    },
    Image: record.image,
    ResolvConfPath: `${dir}/resolv.conf`,
    HostnamePath: `${dir}/hostname`,
    HostsPath: `${dir}/hosts`,
    LogPath: record.logPath,
    // This member is an addition of this engine; it is there only when lines were lost.
    ...(context.droppedLines(record.id) > 0 ? { LogDroppedLines: context.droppedLines(record.id) } : {}),
    Name: record.name,
    RestartCount: record.restartCount,
    Driver: context.graphData(record.id).Name,
    Platform: 'linux',
    MountLabel: record.labels?.mountLabel ?? '',
    ProcessLabel: record.labels?.processLabel ?? '',
    AppArmorProfile: record.appArmorProfile ?? '',
    ExecIDs: execIds.length === 0 ? null : execIds,
    HostConfig: hostConfigView(record, context),
    GraphDriver: { Data: context.graphData(record.id).Data, Name: context.graphData(record.id).Name },
    ...(size ? { SizeRw: size.rw, SizeRootFs: size.rootFs } : {}),
    Mounts: record.mounts.map(mountObject),
    Config: configView(record),
    NetworkSettings: {
      Bridge: '',
      SandboxID: hasSandbox ? record.id : '',
      SandboxKey: hasSandbox ? context.sandboxKey(record) : '',
      Ports: portMap(record),
      HairpinMode: false,
      LinkLocalIPv6Address: '',
      LinkLocalIPv6PrefixLen: 0,
      SecondaryIPAddresses: null,
      SecondaryIPv6Addresses: null,
      EndpointID: bridge?.endpointId ?? '',
      Gateway: bridge?.gateway ?? '',
      GlobalIPv6Address: bridge?.ipv6 ?? '',
      GlobalIPv6PrefixLen: bridge?.ipv6PrefixLength ?? 0,
      IPAddress: bridge?.ipv4 ?? '',
      IPPrefixLen: bridge?.ipv4PrefixLength ?? 0,
      IPv6Gateway: bridge?.ipv6Gateway ?? '',
      MacAddress: bridge?.macAddress ?? onBridge?.MacAddress ?? '',
      Networks: networkMap(record),
    },
    ...(record.imageManifest ? { ImageManifestDescriptor: record.imageManifest } : {}),
  };
}

/** Returns the settings that are in force; links have the names that containers have now. */
function hostConfigView(record: ContainerRecord, { links }: ViewContext): unknown {
  return { ...effectiveHostConfig(record), ...(record.links ? { Links: links(record) } : {}) };
}

/** Adds the MAC address that was asked for on the network of the mode, because clients before 1.44 look for it here. */
function configView({ config, hostConfig, networks }: ContainerRecord): ContainerRecord['config'] {
  const macAddress = ownMember(networks, hostConfig.NetworkMode)?.request.MacAddress;
  return macAddress ? { ...config, MacAddress: macAddress } : config;
}
