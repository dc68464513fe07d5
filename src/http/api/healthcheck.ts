/** `HealthConfig` in the bodies of a creation and of a commit. Durations are in nanoseconds. */
import { integer, list, object, optional, string } from './decode.js';

export const healthcheck = object({
  Test: optional(list(string())),
  Interval: optional(integer()),
  Timeout: optional(integer()),
  StartPeriod: optional(integer()),
  StartInterval: optional(integer()),
  Retries: optional(integer()),
});
