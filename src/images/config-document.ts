/** Reads the configuration of an image, which any builder may have made. */
import { dataLoss } from '../errors/engine-error.js';
import type { ImageConfigDocument } from '../ports/images.js';
import { isDigest } from './reference.js';

/** Parses the document. @throws EngineError data-loss when it is no configuration of an image. */
export function parseConfig(bytes: Buffer): ImageConfigDocument {
  let config: ImageConfigDocument;
  try {
    config = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw dataLoss('invalid image configuration: not JSON', { code: 'BAD_CONFIG', cause: error });
  }
  // An image without layers has null in place of their list, or no list at all.
  const diffIds = config?.rootfs?.diff_ids ?? [];
  if (!isObject(config?.rootfs) || !Array.isArray(diffIds) || !diffIds.every(isDigest)) {
    throw dataLoss('invalid image configuration: no root file system', { code: 'BAD_CONFIG' });
  }
  return { ...config, rootfs: { ...config.rootfs, diff_ids: diffIds } };
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}
