/** Devices that a container asks for by what they are, not by their nodes (`DeviceRequests`). */
import { invalid } from '../errors/engine-error.js';
import type { DeviceRequest } from '../ports/container.js';
import { findCdiDevices, listCdiDevices } from './cdi.js';
import type { CdiEdits } from './cdi-spec.js';

/** The kinds of graphics processors by the names of their drivers, in the order in which they are looked for. */
const GPU_KINDS = new Map([
  ['nvidia', 'nvidia.com/gpu'],
  ['amd', 'amd.com/gpu'],
]);
/** The device of a specification that stands for all others. */
const ALL = 'all';

/**
 * Returns what the requested devices change in the container's spec. The driver `cdi` takes names of devices;
 * `nvidia` and `amd`, or no driver and the capability `gpu`, take indexes, UUIDs or a number of processors, which are
 * found in the CDI specifications of the vendor.
 * @throws EngineError invalid `could not select device driver "X" with capabilities: […]`, with the reason; or for a
 * device that no specification has.
 */
export async function resolveDeviceRequests(
  requests: readonly DeviceRequest[] | null,
  cdiSpecDirs: readonly string[],
): Promise<CdiEdits[]> {
  const names: string[] = [];
  for (const request of requests ?? []) {
    const { Driver, DeviceIDs, Count } = request;
    if (Count !== 0 && (DeviceIDs ?? []).length > 0)
      throw invalid('cannot set both Count and DeviceIDs on device request', { code: 'DEVICE_REQUEST' });
    if (Driver === 'cdi' && cdiSpecDirs.length > 0) names.push(...(DeviceIDs ?? []));
    else names.push(...(await processors(request, cdiSpecDirs)));
  }
  return names.length === 0 ? [] : findCdiDevices(cdiSpecDirs, names);
}

async function processors(request: DeviceRequest, dirs: readonly string[]): Promise<string[]> {
  const { Driver, DeviceIDs, Count } = request;
  const drivers = driversFor(request);
  if (drivers.length === 0 || dirs.length === 0) throw notSelected(request);
  const { names: known, warnings } = await listCdiDevices(dirs);
  const kinds = drivers.flatMap((driver) => GPU_KINDS.get(driver) ?? []);
  const kind = kinds.find((one) => known.some((name) => name.startsWith(`${one}=`)));
  if (kind === undefined)
    throw notSelected(
      request,
      `no CDI specification of ${kinds.join(' or ')} in ${dirs.join(', ')}` +
        (warnings.length === 0 ? '' : ` (${warnings.join('; ')})`),
    );
  if (DeviceIDs !== null && DeviceIDs.length > 0)
    return DeviceIDs.map((id) => (id.includes('=') ? id : `${kind}=${id}`));
  const ids = known.filter((name) => name.startsWith(`${kind}=`)).map((name) => name.slice(kind.length + 1));
  const chosen = Count < 0 ? everyOne(ids) : distinct(ids).slice(0, Count);
  if (Count > chosen.length)
    throw invalid(
      `${Driver || 'gpu'}: ${Count} devices were asked for, ` +
        `but the CDI specifications have ${chosen.length} of ${kind}`,
      { code: 'TOO_FEW_DEVICES' },
    );
  return chosen.map((id) => `${kind}=${id}`);
}

/** Returns the drivers that can serve a request: the named one, or all if a set of capabilities asks for a `gpu`. */
function driversFor({ Driver, Capabilities }: DeviceRequest): string[] {
  if (Driver !== '') return GPU_KINDS.has(Driver) ? [Driver] : [];
  const sets = (Capabilities ?? []).filter((set) => set.includes('gpu'));
  const named = [...GPU_KINDS.keys()].filter((driver) => sets.some((set) => set.includes(driver)));
  return sets.length === 0 ? [] : named.length > 0 ? named : [...GPU_KINDS.keys()];
}

function everyOne(ids: readonly string[]): readonly string[] {
  return ids.includes(ALL) ? [ALL] : distinct(ids);
}

/** A processor may have an index and a UUID: the indexes count, in their order, where there are any. */
function distinct(ids: readonly string[]): string[] {
  const indexes = ids.filter((id) => /^\d+$/.test(id)).toSorted((a, b) => Number(a) - Number(b));
  return indexes.length > 0 ? indexes : ids.filter((id) => id !== ALL);
}

function notSelected({ Driver, Capabilities }: DeviceRequest, reason = ''): Error {
  const list = (Capabilities ?? []).map((all) => `[${all.join(' ')}]`).join(' ');
  return invalid(
    `could not select device driver ${JSON.stringify(Driver)} with capabilities: [${list}]` +
      (reason === '' ? '' : `: ${reason}`),
    { code: 'NO_DEVICE_DRIVER' },
  );
}
