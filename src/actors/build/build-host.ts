/** The platform of builds that name none: that of this machine, and for amd64 of every machine of the kind. */
import { hostPlatform, type Platform } from '../../registry/platform.js';

export function buildHost(): Platform & { readonly osVersion: string } {
  const host = hostPlatform();
  return { ...host, variant: host.architecture === 'amd64' ? '' : host.variant, osVersion: '' };
}
