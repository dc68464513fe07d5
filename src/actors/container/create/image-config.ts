/** A container takes these settings from its image where the client said nothing. */
import { isAbsolute, normalize } from 'node:path';
import { invalid } from '../../../errors/engine-error.js';
import type { ImageRuntimeConfig } from '../../../ports/images.js';
import type { ContainerConfig, HealthConfig } from '../../../ports/container.js';
import { hasMembers } from '../../../text/member-names.js';
import { together } from '../../../text/together.js';

/** Merges and returns the config with path and arguments of the process. Throws invalid when there is no command. */
export function mergeImageConfig(
  given: ContainerConfig,
  image: ImageRuntimeConfig,
): { config: ContainerConfig; path: string; args: string[] } {
  const config: ContainerConfig = {
    ...given,
    User: given.User || image.User || '',
    WorkingDir: cleanPath(given.WorkingDir || image.WorkingDir || ''),
    Env: mergeEnv(given.Env, image.Env),
    Labels: together(image.Labels, given.Labels),
    Volumes: given.Volumes || image.Volumes ? together(image.Volumes, given.Volumes) : null,
    OnBuild: given.OnBuild,
  };
  const ports = together(image.ExposedPorts, given.ExposedPorts);
  if (hasMembers(ports)) config.ExposedPorts = ports;
  // An empty list is not told: Go clients never see one.
  else delete config.ExposedPorts;
  const stopSignal = given.StopSignal || image.StopSignal;
  if (stopSignal) config.StopSignal = stopSignal;
  if (!given.Shell && image.Shell) config.Shell = image.Shell;
  const health = mergeHealth(given.Healthcheck, image.Healthcheck);
  if (health) config.Healthcheck = health;

  if (!given.Entrypoint?.length) {
    if (!given.Cmd?.length) config.Cmd = image.Cmd ?? given.Cmd;
    // An explicit `[""]` resets the image's entrypoint; null or [] inherits it.
    if (!given.Entrypoint?.length) config.Entrypoint = image.Entrypoint ?? null;
  }
  if (config.Entrypoint?.length === 1 && config.Entrypoint[0] === '') config.Entrypoint = null;
  const [path, ...args] = [...(config.Entrypoint ?? []), ...(config.Cmd ?? [])];
  // An empty string is accepted here; the start will not find such a command.
  if (path === undefined) throw invalid('no command specified', { code: 'NO_COMMAND' });
  return { config, path, args };
}

/** Cleans an absolute path. Another path stays as it is and is refused later. */
function cleanPath(path: string): string {
  return isAbsolute(path) ? normalize(path).replace(/(.)\/$/, '$1') : path;
}

/** Returns the client's variables, then those of the image that the client did not set. */
function mergeEnv(given: readonly string[] | null, image: readonly string[] | null | undefined): string[] | null {
  if (!given && !image) return null;
  const own = given ?? [];
  const names = new Set(own.map(variableName));
  return [...own, ...(image ?? []).filter((entry) => !names.has(variableName(entry)))];
}

function variableName(entry: string): string {
  const end = entry.indexOf('=');
  return end === -1 ? entry : entry.slice(0, end);
}

function mergeHealth(given: HealthConfig | undefined, image: HealthConfig | undefined): HealthConfig | undefined {
  if (!given || !image) return given ?? image;
  const merged = { ...image };
  for (const [key, value] of Object.entries(given) as [keyof HealthConfig, never][]) {
    const empty = value === 0 || (Array.isArray(value) && (value as unknown[]).length === 0);
    if (!empty) merged[key] = value;
  }
  return merged;
}
