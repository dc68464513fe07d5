/** Devices that a container asks for by what they are, not by their nodes (`DeviceRequests`). */
import { invalid } from '../errors/engine-error.js';
import type { DeviceRequest } from '../ports/container.js';
import { findCdiDevices, type CdiEdits } from './cdi.js';

/**
 * Returns what the requested devices change in the container's spec. The only driver is `cdi`, if there are directories
 * for it.
 * @throws EngineError invalid `could not select device driver "X" with capabilities: […]`, or for a device that no
 * specification has.
 */
export async function resolveDeviceRequests(
  requests: readonly DeviceRequest[] | null,
  cdiSpecDirs: readonly string[],
): Promise<CdiEdits[]> {
  const names: string[] = [];
  for (const { Driver, DeviceIDs, Capabilities } of requests ?? []) {
    if (Driver !== 'cdi' || cdiSpecDirs.length === 0) {
      const list = (Capabilities ?? []).map((all) => `[${all.join(' ')}]`).join(' ');
      throw invalid(`could not select device driver ${JSON.stringify(Driver)} with capabilities: [${list}]`);
    }
    names.push(...(DeviceIDs ?? []));
  }
  return names.length === 0 ? [] : findCdiDevices(cdiSpecDirs, names);
}
