/** Reads Container Device Interface specifications from directories of the host, and finds devices in them. */
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
import { type CdiEdits, type CdiSpec, parseCdiSpec } from './cdi-spec.js';

/** Specifications of machines with many devices have some hundred kilobytes. */
const MAX_SPEC_BYTES = 4 << 20;

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
        specs.push(parseCdiSpec(path, priority, await readSmall(path)));
      } catch (error) {
        problems.push(`${path}: ${messageOf(error)}`);
      }
    }
  }
  return { specs, problems };
}

/** Only a regular file is read: reading a pipe would never end. */
async function readSmall(path: string): Promise<string> {
  const found = await stat(path);
  if (!found.isFile()) throw new Error('not a regular file');
  if (found.size > MAX_SPEC_BYTES) throw new Error(`larger than ${MAX_SPEC_BYTES} bytes`);
  return readFile(path, 'utf8');
}
