/**
 * Limits of images' configurations. They are read, copied into containers and shown by the main thread, which takes
 * about a millisecond for a thousand members each time; no image that means it well has nearly so many.
 */
import { memberNames } from '../text/member-names.js';
import type { ImageConfigDocument, ImageRuntimeConfig } from './images.js';

/** Images have ranges of ports, and those of the classic builder have them twice. */
export const MAX_PORTS = 20_000;
export const MAX_MEMBERS = 5000;

/** Lists of what a container gets of the host: each member is looked up there, or is a mount, at each start. */
export const MAX_HOST_MEMBERS = 1000;

/** A document within these limits can be parsed at once. */
export const CONFIG_LIMITS = { bytes: 2 << 20, depth: 64, values: 4 * MAX_PORTS, members: MAX_PORTS } as const;

/** Returns what a configuration has too much of, in words that end a sentence; undefined: nothing. */
export function excessOf({ config, rootfs, history }: Partial<ImageConfigDocument>): string | undefined {
  return (
    memberExcess('config.', config ?? {}) ??
    (countOf(config?.ExposedPorts) > MAX_PORTS ? tooMany('config.ExposedPorts', MAX_PORTS) : undefined) ??
    (countOf(rootfs?.diff_ids) > MAX_MEMBERS ? tooMany('rootfs.diff_ids') : undefined) ??
    (countOf(history) > MAX_MEMBERS ? tooMany('history') : undefined)
  );
}

/** Does so for members that containers have, too; their ports are limited by the request. */
export function memberExcess(prefix: string, config: ImageRuntimeConfig): string | undefined {
  const { Labels, Env, Volumes, Cmd, Entrypoint, OnBuild, Shell, Healthcheck } = config;
  const lists = { Labels, Env, Volumes, Cmd, Entrypoint, OnBuild, Shell, 'Healthcheck.Test': Healthcheck?.Test };
  const [name] = Object.entries(lists).find(([, members]) => countOf(members) > MAX_MEMBERS) ?? [];
  return name === undefined ? undefined : tooMany(`${prefix}${name}`);
}

function tooMany(name: string, limit = MAX_MEMBERS): string {
  return `${name} has more than ${limit} members`;
}

function countOf(members: object | null | undefined): number {
  return Array.isArray(members) ? members.length : memberNames(members ?? {}).length;
}
