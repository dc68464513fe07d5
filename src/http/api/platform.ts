/** Platforms where the Engine API has them as JSON objects. */
import { invalid, messageOf } from '../../errors/engine-error.js';
import type { Platform } from '../../registry/platform.js';

/** Reads `{"os", "architecture", "variant"}`. Throws `invalid` with the words that clients know for anything else. */
export function platformObject(text: string): Platform {
  let parsed: { os?: unknown; architecture?: unknown; variant?: unknown } | null;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw invalid(`failed to parse platform: ${messageOf(error)}`, { code: 'INVALID_PLATFORM', cause: error });
  }
  const { os = '', architecture = '', variant = '' } = parsed ?? {};
  if (typeof os !== 'string' || typeof architecture !== 'string' || typeof variant !== 'string') {
    throw invalid('failed to parse platform: os, architecture and variant are texts', { code: 'INVALID_PLATFORM' });
  }
  if (os === '' || architecture === '') {
    throw invalid('both OS and Architecture must be provided', { code: 'INVALID_PLATFORM' });
  }
  return { os, architecture, variant };
}
