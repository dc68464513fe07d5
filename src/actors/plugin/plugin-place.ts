/** Translates paths that a managed plugin tells to paths on the host. */
import { join } from 'node:path';
import type { PluginFiles, PluginRecord } from '../../ports/managed-plugin.js';

/**
 * Returns the directory that the path cannot leave, and the path in it. What is below the propagated mount is mounted
 * on the host as well; the rest is in the plugin's root file system.
 */
export function placeInPlugin(
  { config: { PropagatedMount } }: PluginRecord,
  { rootfs, propagated }: PluginFiles,
  path: string,
): { readonly root: string; readonly path: string } {
  const clean = join('/', path);
  const base = PropagatedMount === '' ? undefined : join('/', PropagatedMount);
  if (base !== undefined && (clean === base || clean.startsWith(`${base}/`)))
    return { root: propagated, path: clean.slice(base.length) || '/' };
  return { root: rootfs, path: clean };
}
