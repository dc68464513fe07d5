/** The body of POST /containers/{id}/update. */
import type { AtLeast } from './at-least.js';
import type { HostConfig } from '../../ports/container.js';
import { invalid } from '../../errors/engine-error.js';
import { integer, object, optional, string } from './decode.js';
import { resourcesShape } from './container-create.js';

const body = object({
  ...resourcesShape,
  RestartPolicy: optional(object({ Name: string(), MaximumRetryCount: integer() })),
});

/** These settings stay as they were made: they are ignored, as by the known engine. */
const FIXED: ReadonlySet<string> = new Set([
  'CgroupParent',
  'Devices',
  'DeviceCgroupRules',
  'DeviceRequests',
  'MemorySwappiness',
  'OomKillDisable',
  'Ulimits',
  'CpuCount',
  'CpuPercent',
  'IOMaximumIOps',
  'IOMaximumBandwidth',
]);

/** Returns the settings that the client wants changed: zero, empty and null mean unchanged. */
export function decodeUpdate(value: unknown, atLeast: AtLeast): Partial<HostConfig> {
  if (value === undefined || value === null) throw invalid('invalid JSON: got EOF while reading request body');
  const { RestartPolicy, ...limits } = body.decode(value, '');
  // The known clients send a policy without a name when it is to stay.
  const decoded = { ...limits, PidsLimit: null, RestartPolicy: RestartPolicy?.Name ? RestartPolicy : null };
  const change = Object.fromEntries(
    Object.entries(decoded).filter(
      ([name, setting]) =>
        !FIXED.has(name) &&
        setting !== 0 &&
        setting !== '' &&
        setting !== null &&
        !(Array.isArray(setting) && setting.length === 0),
    ),
  ) as Partial<HostConfig>;
  // 0 or less lifts the limit on processes.
  return limits.PidsLimit === null || !atLeast(1, 40)
    ? change
    : { ...change, PidsLimit: Math.max(limits.PidsLimit, 0) };
}
