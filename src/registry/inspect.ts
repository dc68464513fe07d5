/** Looks up a name in a registry, without pulling the image. */
import { dataLoss, forbidden, messageOf } from '../errors/engine-error.js';
import { CONFIG_LIMITS } from '../ports/config-limits.js';
import { type RegistryAccess, withGrant } from './access.js';
import { getBlob, getManifest } from './client.js';
import { factsOf } from './failure.js';
import { type EntryPlatform, parseManifest, platformOf } from './manifest.js';
import { pullScope } from './token.js';
import { parseForeignJson } from '../text/foreign-json.js';

export interface RemoteImage {
  readonly mediaType: string;
  readonly digest: string;
  readonly sizeBytes: number;
  readonly platforms: readonly EntryPlatform[];
}

/**
 * Reads the manifest and, for a single image, its configuration. Throws `forbidden` when access is denied, not-found,
 * and the registry's other failures.
 */
export async function inspectRemote(
  access: RegistryAccess,
  repository: string,
  reference: string,
  name: string,
  signal: AbortSignal,
): Promise<RemoteImage> {
  const scope = pullScope(repository);
  const options = { limits: access.limits, signal };
  try {
    const { bytes, digest, mediaType } = await withGrant(access, scope, signal, (grant) =>
      getManifest(grant, repository, reference, options),
    );
    const manifest = parseManifest(bytes, mediaType, name);
    const base = { mediaType: manifest.mediaType, digest, sizeBytes: bytes.length };
    if (manifest.kind === 'index')
      return { ...base, platforms: manifest.manifests.flatMap(({ platform }) => (platform ? [platform] : [])) };
    const config = await withGrant(access, scope, signal, (grant) =>
      getBlob(grant, repository, manifest.config, options),
    );
    return { ...base, platforms: [configPlatform(config)] };
  } catch (error) {
    const { registryCode, status } = factsOf(error);
    if (registryCode === 'DENIED' || status === 403)
      throw forbidden((error as Error).message, { code: 'ACCESS_DENIED', cause: error });
    throw error;
  }
}

function configPlatform(bytes: Buffer): EntryPlatform {
  let config: unknown;
  try {
    config = parseForeignJson(bytes, CONFIG_LIMITS);
  } catch (error) {
    throw dataLoss(`invalid image configuration: ${messageOf(error)}`, { code: 'BAD_CONFIG', cause: error });
  }
  return platformOf(config);
}
