/** Reads Container Device Interface specifications from directories of the host, and finds devices in them. */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
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

/** `containerEdits` of the CDI specification (cncf-tags/container-device-interface, SPEC.md). */
export interface CdiEdits {
  readonly env?: readonly string[];
  readonly deviceNodes?: readonly CdiDeviceNode[];
  readonly mounts?: readonly {
    readonly hostPath: string;
    readonly containerPath: string;
    readonly type?: string;
    readonly options?: readonly string[];
  }[];
  readonly hooks?: readonly CdiHook[];
  readonly additionalGids?: readonly number[];
}

interface CdiSpec {
  readonly path: string;
  /** Specifications in later directories have precedence. */
  readonly priority: number;
  readonly kind: string;
  readonly edits: CdiEdits | undefined;
  readonly devices: ReadonlyMap<string, CdiEdits>;
}

const NAME = /^[a-zA-Z0-9]([a-zA-Z0-9_.:-]*[a-zA-Z0-9])?$/;
const KIND = /^[a-zA-Z]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?\/[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$/;

/**
 * Returns the edits of fully qualified devices, `vendor.com/class=name`: those of each specification in use once, then
 * the devices' own. They are read each time, because specifications are generated while the daemon runs.
 * @throws EngineError invalid that names what could not be found, and why specifications were left out.
 */
export async function findCdiDevices(dirs: readonly string[], names: readonly string[]): Promise<CdiEdits[]> {
  const { specs, problems } = await readSpecs(dirs);
  const used = new Set<CdiSpec>();
  const edits: CdiEdits[] = [];
  const missing: string[] = [];
  for (const name of new Set(names)) {
    const [spec, rival] = withPrecedence(specs, name);
    if (spec && rival) throw invalid(`CDI device injection failed: ${conflictOf(name, spec, rival)}`);
    if (!spec) {
      missing.push(name);
      continue;
    }
    if (!used.has(spec) && spec.edits) edits.push(spec.edits);
    used.add(spec);
    edits.push(spec.devices.get(deviceName(name)) ?? {});
  }
  if (missing.length > 0) {
    const left = problems.length === 0 ? '' : ` (left out: ${problems.join('; ')})`;
    throw invalid(`CDI device injection failed: unresolvable CDI devices ${missing.join(', ')}${left}`, {
      code: 'CDI_DEVICE_UNRESOLVABLE',
    });
  }
  return edits;
}

/**
 * Lists the devices that containers can ask for, by their qualified names, sorted; and says in the words of `info`
 * which specifications were left out and which devices are ambiguous.
 */
export async function listCdiDevices(
  dirs: readonly string[],
): Promise<{ readonly names: readonly string[]; readonly warnings: readonly string[] }> {
  const { specs, problems } = await readSpecs(dirs);
  const names: string[] = [];
  const conflicts: string[] = [];
  for (const name of new Set(specs.flatMap(({ kind, devices }) => [...devices.keys()].map((id) => `${kind}=${id}`)))) {
    const [spec, rival] = withPrecedence(specs, name);
    if (spec && rival) conflicts.push(conflictOf(name, spec, rival));
    else names.push(name);
  }
  const warnings = [
    ...problems.map((problem) => `CDI: Error associated with spec file ${problem}`),
    ...conflicts.map((conflict) => `CDI: ${conflict}`),
  ];
  return { names: names.sort(), warnings };
}

function deviceName(qualified: string): string {
  return qualified.slice(qualified.indexOf('=') + 1);
}

/** Returns the specifications of a device that have the highest precedence; two of them make its name ambiguous. */
function withPrecedence(specs: readonly CdiSpec[], qualified: string): readonly CdiSpec[] {
  const candidates = specs.filter(
    ({ kind, devices }) => qualified.startsWith(`${kind}=`) && devices.has(deviceName(qualified)),
  );
  const best = Math.max(...candidates.map(({ priority }) => priority));
  return candidates.filter(({ priority }) => priority === best);
}

function conflictOf(name: string, first: CdiSpec, second: CdiSpec): string {
  return `conflicting device ${name} in ${first.path} and ${second.path}`;
}

async function readSpecs(dirs: readonly string[]): Promise<{ specs: CdiSpec[]; problems: string[] }> {
  const specs: CdiSpec[] = [];
  const problems: string[] = [];
  for (const [priority, dir] of dirs.entries()) {
    const files = (await readdir(dir).catch(() => [])).filter((name) => /\.(json|ya?ml)$/.test(name));
    for (const file of files) {
      const path = join(dir, file);
      try {
        specs.push(readSpec(path, priority, parseYaml(await readFile(path, 'utf8'), { maxAliasCount: 0 })));
      } catch (error) {
        problems.push(`${path}: ${messageOf(error)}`);
      }
    }
  }
  return { specs, problems };
}

/** Reads a specification. JSON is YAML, so one parser reads both. */
function readSpec(path: string, priority: number, content: unknown): CdiSpec {
  const { kind, devices, containerEdits } = Object(content) as {
    kind?: unknown;
    devices?: unknown;
    containerEdits?: CdiEdits;
  };
  if (typeof kind !== 'string' || !KIND.test(kind)) throw new Error('kind must be of form vendor/class');
  if (!Array.isArray(devices)) throw new Error('devices must be a list');
  const named = new Map<string, CdiEdits>();
  for (const device of devices as { name?: unknown; containerEdits?: CdiEdits }[]) {
    if (typeof device.name !== 'string' || !NAME.test(device.name)) throw new Error('every device must have a name');
    if (named.has(device.name)) throw new Error(`device ${device.name} is there twice`);
    named.set(device.name, device.containerEdits ?? {});
  }
  return { path, priority, kind, edits: containerEdits, devices: named };
}
