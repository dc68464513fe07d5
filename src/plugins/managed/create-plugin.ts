/** Makes a plugin of the archive that a client sends: `config.json`, and the files of the plugin below `rootfs`. */
import { constants } from 'node:fs';
import { lstat, mkdir, open, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid } from '../../errors/engine-error.js';
import type { ArchiveSource } from '../../ports/archives.js';
import type { PluginConfig } from '../../ports/managed-plugin.js';
import type { ArchiveWorkers } from '../../storage/archives.js';
import type { WorkerPool } from '../../workers/pool.js';
import { PLUGIN_LAYER_TYPE, pluginManifest } from './manifest.js';
import { parsePluginConfig } from './plugin-config.js';
import type { StagedPlugin } from './plugin-store.js';

export interface CreatePluginDeps {
  readonly archives: Pick<ArchiveWorkers, 'write'>;
  readonly pool: Pick<WorkerPool, 'run'>;
  /** Version that the configuration names as its maker. */
  readonly version: string;
}

const MAX_CONFIG_BYTES = 1 << 20;

/**
 * Fills a staged plugin from an archive. The configuration gets its maker's version and its layer.
 * @throws EngineError invalid for a damaged archive, `config not found`, and for a configuration that is none.
 */
export async function fillFromArchive(
  { archives, pool, version }: CreatePluginDeps,
  staged: StagedPlugin,
  source: ArchiveSource,
): Promise<PluginConfig> {
  const upload = join(staged.dir, 'upload');
  await mkdir(upload, { mode: 0o700 });
  const view = { rootfs: upload, mounts: [], tmpfs: [], isRootReadOnly: false };
  await archives.write(view, '/', { noOverwriteDirNonDir: false, owner: undefined }, source);
  const given = await readConfig(join(upload, 'config.json'));
  const parsed = parsePluginConfig(given);
  const files = join(upload, 'rootfs');
  if ((await lstat(files).catch(() => undefined))?.isDirectory() === true) {
    await rm(staged.rootfs, { recursive: true });
    await rename(files, staged.rootfs);
  }
  const blobPath = join(staged.content, 'layer');
  const { digest, sizeBytes, diffId } = await pool.run('pack-rootfs', { rootfs: staged.rootfs, path: blobPath });
  await rename(blobPath, join(staged.content, digest.slice('sha256:'.length)));
  const rootfs = { type: 'layers', diff_ids: [diffId] };
  const document = { ...(JSON.parse(given.toString('utf8')) as object), DockerVersion: version, rootfs };
  const config = Buffer.from(JSON.stringify(document));
  const manifest = pluginManifest(config, [{ digest, sizeBytes, mediaType: PLUGIN_LAYER_TYPE }]);
  await writeFile(join(staged.content, 'config.json'), config, { mode: 0o600 });
  await writeFile(join(staged.content, 'manifest.json'), manifest.bytes, { mode: 0o600 });
  await pool.run('remove-trees', { paths: [upload] });
  return { ...parsed, DockerVersion: version, rootfs };
}

/** A link, a FIFO or a device in the archive is no configuration. */
async function readConfig(path: string): Promise<Buffer> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) throw invalid('config not found', { code: 'PLUGIN_CONFIG' });
  if (!found.isFile()) throw invalid('config.json is not a file', { code: 'PLUGIN_CONFIG' });
  if (found.size > MAX_CONFIG_BYTES)
    throw invalid(`config.json is larger than ${MAX_CONFIG_BYTES} bytes`, { code: 'PLUGIN_CONFIG' });
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    return await file.readFile();
  } finally {
    await file.close();
  }
}
