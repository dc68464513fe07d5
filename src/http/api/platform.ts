/** Platforms where the Engine API has them as JSON objects. */
import { invalid } from '../../errors/engine-error.js';
import type { Platform } from '../../registry/platform.js';

/** Reads `{"os", "architecture", "variant"}`. Throws `invalid` for anything else. */
export function platformObject(text: string): Platform {
  let parsed: { os?: unknown; architecture?: unknown; variant?: unknown } | null;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw invalid(`invalid platform: ${text}`, { code: 'INVALID_PLATFORM', cause: error });
  }
  const { os, architecture, variant } = parsed ?? {};
  if (typeof os !== 'string' || typeof architecture !== 'string' || os === '' || architecture === '') {
    throw invalid('invalid platform: both os and architecture must be provided', { code: 'INVALID_PLATFORM' });
  }
  return { os, architecture, variant: typeof variant === 'string' ? variant : '' };
}
