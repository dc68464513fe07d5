/** Finds a plugin by its name: as a socket, or by a file that says where it listens. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, isAbsolute, join } from 'node:path';
import { invalid, notFound } from '../errors/engine-error.js';
import type { ManagedPlugins } from '../ports/managed-plugin.js';
import { parseJsonFile, parseSpecFile, type PluginAddress } from './plugin-spec.js';

export interface PluginPlaces {
  readonly sockets: readonly string[];
  readonly files: readonly string[];
  /** Plugins that the daemon runs; they come before those of operators. */
  readonly managed?: ManagedPlugins;
}

/** Our own directories, and those that existing plugins install into. */
export const PLUGIN_PLACES: PluginPlaces = {
  sockets: ['/run/engine/plugins', '/run/docker/plugins'],
  files: ['/etc/engine/plugins', '/usr/lib/engine/plugins', '/etc/docker/plugins', '/usr/lib/docker/plugins'],
};

export interface FoundPlugin {
  readonly name: string;
  readonly address: PluginAddress;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.:-]*$/;

/**
 * Looks for `NAME.sock`, then for `NAME.spec` and `NAME.json`, in each directory and in its subdirectory `NAME`.
 * @param id a name, or the absolute path of a socket or of a `.spec` or `.json` file.
 * @throws EngineError not-found, invalid for a name or a file that cannot be one.
 */
export async function findPlugin(id: string, places: PluginPlaces = PLUGIN_PLACES): Promise<FoundPlugin> {
  if (isAbsolute(id)) {
    const address = (await socketAt(id)) ?? (await fileAt(id));
    if (address === undefined) throw notFound(`plugin ${JSON.stringify(id)} not found`, { code: 'PLUGIN' });
    return { name: basename(id).replace(/\.(?:sock|spec|json)$/, ''), address };
  }
  if (!NAME.test(id)) throw invalid(`invalid plugin name ${JSON.stringify(id)}`, { code: 'PLUGIN' });
  for (const dir of places.sockets) {
    const address = (await socketAt(join(dir, `${id}.sock`))) ?? (await socketAt(join(dir, id, `${id}.sock`)));
    if (address !== undefined) return { name: id, address };
  }
  for (const dir of places.files) {
    for (const place of [join(dir, id), join(dir, id, id)]) {
      const address = (await fileAt(`${place}.spec`)) ?? (await fileAt(`${place}.json`));
      if (address !== undefined) return { name: id, address };
    }
  }
  throw notFound(`plugin ${JSON.stringify(id)} not found`, { code: 'PLUGIN' });
}

/** Returns the names of all plugins that `findPlugin` may find. */
export async function pluginNames({ sockets, files, managed }: PluginPlaces = PLUGIN_PLACES): Promise<string[]> {
  const names = await Promise.all([
    ...sockets.map((dir) => namesIn(dir, /\.sock$/)),
    ...files.map((dir) => namesIn(dir, /\.(?:spec|json)$/)),
  ]);
  const found = names.flat().filter((name) => NAME.test(name));
  return [...new Set([...(managed?.names() ?? []), ...found])];
}

/** A directory counts as the plugin that has its name. */
async function namesIn(dir: string, ending: RegExp): Promise<string[]> {
  const entries = (await readdir(dir, { withFileTypes: true }).catch(absent)) ?? [];
  return entries.flatMap((entry) =>
    entry.isDirectory() ? [entry.name] : ending.test(entry.name) ? [entry.name.replace(ending, '')] : [],
  );
}

async function socketAt(path: string): Promise<PluginAddress | undefined> {
  const found = await stat(path).catch(absent);
  return found?.isSocket() === true ? { kind: 'unix', path } : undefined;
}

async function fileAt(path: string): Promise<PluginAddress | undefined> {
  const found = await stat(path).catch(absent);
  // Only a regular file is read: reading a pipe would never end.
  if (found?.isFile() !== true) return undefined;
  const content = await readFile(path, 'utf8');
  return path.endsWith('.json') ? parseJsonFile(path, content) : parseSpecFile(path, content);
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
  throw error;
}
