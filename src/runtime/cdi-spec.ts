/** Reads one specification of the Container Device Interface, and checks it as a whole: version, names, every edit. */
import { parseYaml } from './yaml.js';

export interface CdiDeviceNode {
  readonly path: string;
  readonly hostPath?: string;
  readonly type?: string;
  readonly major?: number;
  readonly minor?: number;
  readonly fileMode?: number;
  readonly permissions?: string;
  readonly uid?: number;
  readonly gid?: number;
}

export interface CdiHook {
  readonly hookName: string;
  readonly path: string;
  readonly args?: readonly string[];
  readonly env?: readonly string[];
  readonly timeout?: number;
}

export interface CdiMount {
  readonly hostPath: string;
  readonly containerPath: string;
  readonly type?: string;
  readonly options?: readonly string[];
}

/** Limits of caches and memory bandwidth, as the OCI specification has them. */
export type CdiIntelRdt = Readonly<Record<string, string | boolean | readonly string[]>>;

/** `containerEdits` of the CDI specification (cncf-tags/container-device-interface, SPEC.md). */
export interface CdiEdits {
  readonly env?: readonly string[];
  readonly deviceNodes?: readonly CdiDeviceNode[];
  readonly netDevices?: readonly { readonly hostInterfaceName: string; readonly name: string }[];
  readonly mounts?: readonly CdiMount[];
  readonly hooks?: readonly CdiHook[];
  readonly additionalGids?: readonly number[];
  readonly intelRdt?: CdiIntelRdt;
}

export interface CdiSpec {
  readonly path: string;
  /** Specifications in later directories have precedence. */
  readonly priority: number;
  readonly kind: string;
  readonly edits: CdiEdits | undefined;
  readonly devices: ReadonlyMap<string, CdiEdits>;
}

type Members = Readonly<Record<string, unknown>>;

const NAME = /^[a-zA-Z0-9]([a-zA-Z0-9_.:-]*[a-zA-Z0-9])?$/;
/** Known versions, the oldest first. */
const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.4.0', '0.5.0', '0.6.0', '0.7.0', '0.8.0', '1.0.0', '1.1.0'];

const VENDOR = /^[a-zA-Z]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$/;
const CLASS = /^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$/;

/** Tells whether a text is a vendor and a class with a slash between them. */
function isKind(text: string): boolean {
  const slash = text.indexOf('/');
  return slash >= 0 && VENDOR.test(text.slice(0, slash)) && CLASS.test(text.slice(slash + 1));
}

/** Reads a specification. JSON is YAML, so one parser reads both. @throws Error that says what is wrong with it. */
export function parseCdiSpec(path: string, priority: number, text: string): CdiSpec {
  const content = objectAt(parseYaml(text, { maxAliasCount: 0 }), 'the specification');
  const { kind, devices, containerEdits, cdiVersion } = content;
  const version = VERSIONS.indexOf(String(cdiVersion).replace(/^v/, ''));
  if (version < 0) throw new Error(`invalid version ${JSON.stringify(cdiVersion ?? '')}`);
  if (typeof kind !== 'string' || !isKind(kind)) throw new Error('kind must be of form vendor/class');
  if (!Array.isArray(devices)) throw new Error('devices must be a list');
  const named = new Map<string, CdiEdits>();
  for (const device of devices.map((one) => objectAt(one, 'a device'))) {
    const { name } = device;
    if (typeof name !== 'string' || !NAME.test(name)) throw new Error('every device must have a name');
    if (named.has(name)) throw new Error(`device ${name} is there twice`);
    named.set(name, editsOf(device['containerEdits'] ?? {}, `device ${name}`));
  }
  const edits = containerEdits === undefined ? undefined : editsOf(containerEdits, 'containerEdits');
  const needed = neededVersion(content, [...named], edits);
  if (VERSIONS.indexOf(needed) > version) throw new Error(`the spec version must be at least v${needed}`);
  return { path, priority, kind, edits, devices: named };
}

/** Returns the first version that has everything that a specification uses. */
function neededVersion(
  { kind, annotations }: Members,
  devices: readonly (readonly [name: string, edits: CdiEdits])[],
  common: CdiEdits | undefined,
): string {
  const all = [...devices.map(([, edits]) => edits), ...(common ? [common] : [])];
  const has = (test: (edits: CdiEdits) => boolean): boolean => all.some(test);
  if (has(({ netDevices }) => netDevices !== undefined)) return '1.1.0';
  if (has(({ intelRdt }) => ['schemata', 'enableMonitoring'].some((name) => intelRdt?.[name] !== undefined)))
    return '1.1.0';
  if (has(({ intelRdt, additionalGids }) => intelRdt !== undefined || additionalGids !== undefined)) return '0.7.0';
  if (annotations !== undefined || String(kind).split('/')[1]?.includes('.') === true) return '0.6.0';
  if (devices.some(([name]) => /^\d/.test(name))) return '0.5.0';
  if (has(({ deviceNodes = [] }) => deviceNodes.some(({ hostPath }) => hostPath !== undefined))) return '0.5.0';
  if (has(({ mounts = [] }) => mounts.some(({ type }) => type !== undefined))) return '0.4.0';
  return '0.3.0';
}

const TEXT = (value: unknown): boolean => typeof value === 'string' && !value.includes('\0');
const NUMBER = (value: unknown): boolean => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
const TEXTS = (value: unknown): boolean => Array.isArray(value) && value.every(TEXT);

const NODE = {
  hostPath: TEXT,
  type: TEXT,
  permissions: TEXT,
  ...all(['major', 'minor', 'fileMode', 'uid', 'gid'], NUMBER),
};
const HOOK = { args: TEXTS, env: TEXTS, timeout: NUMBER };
const RDT = {
  ...all(['closID', 'l3CacheSchema', 'memBwSchema'], TEXT),
  schemata: TEXTS,
  ...all(['enableCMT', 'enableMBM', 'enableMonitoring'], (value) => typeof value === 'boolean'),
};

function all(
  names: readonly string[],
  test: (value: unknown) => boolean,
): Readonly<Record<string, (value: unknown) => boolean>> {
  return Object.fromEntries(names.map((name) => [name, test]));
}

/** Checks the types of all edits, so that whoever applies them need not. */
function editsOf(value: unknown, where: string): CdiEdits {
  const edits = objectAt(value, `containerEdits of ${where}`);
  const lists = {
    deviceNodes: [['path'], NODE] as const,
    netDevices: [['hostInterfaceName', 'name'], {}] as const,
    mounts: [['hostPath', 'containerPath'], { type: TEXT, options: TEXTS }] as const,
    hooks: [['hookName', 'path'], HOOK] as const,
  };
  for (const [name, [required, tests]] of Object.entries(lists)) {
    const list = edits[name] ?? [];
    if (!Array.isArray(list)) throw new Error(`${where}: ${name} must be a list`);
    for (const item of list)
      requireMembers(objectAt(item, `${where}: each of ${name}`), `${where}: ${name}`, required, tests);
  }
  requireMembers(edits, where, [], { env: TEXTS, additionalGids: (gids) => Array.isArray(gids) && gids.every(NUMBER) });
  if (edits['intelRdt'] !== undefined)
    requireMembers(objectAt(edits['intelRdt'], `${where}: intelRdt`), `${where}: intelRdt`, [], RDT);
  return edits;
}

type Tests = Readonly<Record<string, (value: unknown) => boolean>>;

function requireMembers(object: Members, where: string, required: readonly string[], tests: Tests): void {
  const given = new Map(Object.entries(object));
  for (const name of required)
    if (!TEXT(given.get(name)) || given.get(name) === '') throw new Error(`${where}: ${name} must be a text`);
  for (const [name, test] of Object.entries(tests))
    if (given.get(name) !== undefined && !test(given.get(name)))
      throw new Error(`${where}: ${name} is of a wrong type`);
}

function objectAt(value: unknown, what: string): Members {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${what} must be an object`);
  return value as Members;
}
