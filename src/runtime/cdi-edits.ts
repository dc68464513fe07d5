/** Puts the edits of CDI devices into a container's spec. */
import { lstat } from 'node:fs/promises';
import { invalid, messageOf } from '../errors/engine-error.js';
import type { CdiDeviceNode, CdiEdits, CdiIntelRdt } from './cdi-spec.js';
import { toDevice } from './devices.js';
import type { OciDevice, OciDeviceRule, OciHooks, OciMount, OciProcess } from './oci-types.js';

/** The parts of a spec that devices may change. */
export interface EditedParts {
  readonly process: OciProcess;
  readonly mounts: readonly OciMount[];
  readonly nodes: readonly OciDevice[];
  readonly rules: readonly OciDeviceRule[];
  readonly hooks: OciHooks;
  /** Links of the host that the container gets, and what they are called there. */
  readonly netDevices: Readonly<Record<string, { readonly name: string }>>;
  readonly intelRdt: CdiIntelRdt | undefined;
}

/** As the runtime has it for a node without a mode. */
const DEFAULT_MODE = 0o666;

const HOOKS: ReadonlySet<string> = new Set([
  'prestart',
  'createRuntime',
  'createContainer',
  'startContainer',
  'poststart',
  'poststop',
]);

/**
 * Applies the edits. @throws EngineError invalid for a device node that the host does not have, or a hook that the
 * runtime does not have.
 */
export async function applyCdiEdits(parts: EditedParts, edits: readonly CdiEdits[]): Promise<EditedParts> {
  let { process, mounts, nodes, rules, intelRdt } = parts;
  const hooks: Record<string, OciHooks[keyof OciHooks]> = { ...parts.hooks };
  const netDevices = new Map(Object.entries(parts.netDevices));
  for (const edit of edits) {
    process = editedProcess(process, edit);
    const targets = new Set((edit.mounts ?? []).map(({ containerPath }) => containerPath));
    mounts = [
      ...mounts.filter(({ destination }) => !targets.has(destination)),
      ...(edit.mounts ?? []).map(({ hostPath, containerPath, type = 'bind', options = ['rbind'] }) => ({
        destination: containerPath,
        source: hostPath,
        type,
        options: [...options],
      })),
    ];
    for (const given of edit.deviceNodes ?? []) {
      const { node, access } = await deviceOf(given, process);
      nodes = [...nodes.filter(({ path }) => path !== node.path), node];
      const { type, major, minor } = node;
      // A FIFO is no device to the control group.
      if (type !== 'p') rules = [...rules, { allow: true, type: type === 'b' ? 'b' : 'c', major, minor, access }];
    }
    for (const { hookName, ...hook } of edit.hooks ?? []) {
      if (!HOOKS.has(hookName)) throw invalid(`CDI device injection failed: unknown hook ${hookName}`);
      hooks[hookName] = [...(hooks[hookName] ?? []), hook];
    }
    for (const { hostInterfaceName, name } of edit.netDevices ?? []) netDevices.set(hostInterfaceName, { name });
    intelRdt = edit.intelRdt ?? intelRdt;
  }
  return { process, mounts, nodes, rules, hooks, netDevices: Object.fromEntries(netDevices), intelRdt };
}

function editedProcess(process: OciProcess, { env = [], additionalGids = [] }: CdiEdits): OciProcess {
  const names = new Set(env.map(nameOf));
  const groups = new Set([...(process.user.additionalGids ?? []), ...additionalGids.filter((gid) => gid !== 0)]);
  return {
    ...process,
    env: [...process.env.filter((entry) => !names.has(nameOf(entry))), ...env],
    user: { ...process.user, ...(groups.size > 0 ? { additionalGids: [...groups] } : {}) },
  };
}

function nameOf(entry: string): string {
  return entry.split('=', 1)[0] ?? '';
}

const TYPES = new Set(['b', 'c', 'u', 'p']);

/**
 * Completes a device: members that the specification leaves open are read from the node on the host. A node whose type
 * and numbers are given need not be there yet. It belongs to the user of the container unless something else is said.
 */
async function deviceOf(
  { path, hostPath = path, type = '', major = 0, minor = 0, fileMode, permissions, uid, gid }: CdiDeviceNode,
  { user }: OciProcess,
): Promise<{ node: OciDevice; access: string }> {
  if (type !== '' && !TYPES.has(type))
    throw invalid(`CDI device injection failed: device node ${path} is of the unknown type ${type}`);
  const isComplete = type !== '' && (major !== 0 || type === 'p');
  const found = isComplete
    ? { path, type: type as OciDevice['type'], major, minor, fileMode: DEFAULT_MODE, uid: 0, gid: 0 }
    : await foundDevice(path, hostPath, type);
  return {
    node: {
      ...found,
      major: major || found.major,
      minor: minor || found.minor,
      fileMode: fileMode ?? found.fileMode,
      uid: uid ?? (user.uid > 0 ? user.uid : found.uid),
      gid: gid ?? (user.gid > 0 ? user.gid : found.gid),
    },
    access: permissions ?? 'rwm',
  };
}

async function foundDevice(path: string, hostPath: string, type: string): Promise<OciDevice> {
  const found = await lstat(hostPath).then(
    (stats) => toDevice(path, stats),
    (error: unknown) => {
      throw invalid(`CDI device injection failed: device node ${hostPath}: ${messageOf(error)}`, { cause: error });
    },
  );
  if (!found) throw invalid(`CDI device injection failed: ${hostPath} is not a device node`);
  if (type !== '' && type !== found.type && !(type === 'u' && found.type === 'c')) {
    throw invalid(`CDI device injection failed: ${hostPath} is not a device of type ${type}`);
  }
  return found;
}
