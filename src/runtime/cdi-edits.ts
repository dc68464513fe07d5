/** Puts the edits of CDI devices into a container's spec. */
import { lstat } from 'node:fs/promises';
import { invalid, messageOf } from '../errors/engine-error.js';
import type { CdiDeviceNode, CdiEdits } from './cdi.js';
import { toDevice } from './devices.js';
import type { OciDevice, OciDeviceRule, OciHooks, OciMount, OciProcess } from './oci-types.js';

/** The parts of a spec that devices may change. */
export interface EditedParts {
  readonly process: OciProcess;
  readonly mounts: readonly OciMount[];
  readonly nodes: readonly OciDevice[];
  readonly rules: readonly OciDeviceRule[];
  readonly hooks: OciHooks;
}

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
  let { process, mounts, nodes, rules } = parts;
  const hooks: Record<string, OciHooks[keyof OciHooks]> = { ...parts.hooks };
  for (const edit of edits) {
    const names = new Set((edit.env ?? []).map(nameOf));
    const groups = new Set([
      ...(process.user.additionalGids ?? []),
      ...(edit.additionalGids ?? []).filter((gid) => gid !== 0),
    ]);
    process = {
      ...process,
      env: [...process.env.filter((entry) => !names.has(nameOf(entry))), ...(edit.env ?? [])],
      user: { ...process.user, ...(groups.size > 0 ? { additionalGids: [...groups] } : {}) },
    };
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
      const { node, access } = await deviceOf(given);
      nodes = [...nodes.filter(({ path }) => path !== node.path), node];
      rules = [...rules, { allow: true, type: node.type, major: node.major, minor: node.minor, access }];
    }
    for (const { hookName, ...hook } of edit.hooks ?? []) {
      if (!HOOKS.has(hookName)) throw invalid(`CDI device injection failed: unknown hook ${hookName}`);
      hooks[hookName] = [...(hooks[hookName] ?? []), hook];
    }
  }
  return { process, mounts, nodes, rules, hooks };
}

function nameOf(entry: string): string {
  return entry.split('=', 1)[0] ?? '';
}

/** Completes a device: members that the specification leaves open are read from the node on the host. */
async function deviceOf({
  path,
  hostPath = path,
  type,
  major,
  minor,
  fileMode,
  permissions = 'rwm',
  uid,
  gid,
}: CdiDeviceNode): Promise<{ node: OciDevice; access: string }> {
  const found = await lstat(hostPath).then(
    (stats) => toDevice(path, stats),
    (error: unknown) => {
      throw invalid(`CDI device injection failed: device node ${hostPath}: ${messageOf(error)}`, { cause: error });
    },
  );
  if (!found) throw invalid(`CDI device injection failed: ${hostPath} is not a device node`);
  if (type !== undefined && type !== '' && type !== found.type && !(type === 'u' && found.type === 'c')) {
    throw invalid(`CDI device injection failed: ${hostPath} is not a device of type ${type}`);
  }
  return {
    node: {
      ...found,
      major: major ?? found.major,
      minor: minor ?? found.minor,
      fileMode: fileMode ?? found.fileMode,
      uid: uid ?? found.uid,
      gid: gid ?? found.gid,
    },
    access: permissions,
  };
}
