/** `Manifests` of images: what the index has that an image came with, and how much of it is here (Engine API 1.47). */
import type { ImageUser } from '../../images/removal.js';
import type { Image } from '../../ports/images.js';
import type { OciDescriptor, OciPlatform } from '../../ports/published-image.js';

type Json = Readonly<Record<string, unknown>>;

/** One element for each manifest; none for an image that no registry had. @param users containers of the image. */
export function manifestsJson(image: Image, users: readonly ImageUser[]): readonly Json[] {
  return (image.published?.manifests ?? []).map((descriptor) => {
    const isOwn = descriptor.digest === image.published?.own;
    const about = { ID: descriptor.digest, Descriptor: descriptor, Available: isOwn };
    // Layers are kept only as files, not as the blobs that they came in.
    const unpacked = isOwn ? image.sizeBytes : 0;
    const attested = attestedBy(descriptor);
    if (attested !== undefined) return { ...about, Size: sizeJson(0), Kind: 'attestation', AttestationData: { For: attested } };
    const platform = descriptor.platform ?? (isOwn ? platformOf(image) : undefined);
    if (platform === undefined || platform.os === 'unknown') return { ...about, Size: sizeJson(0), Kind: 'unknown' };
    const containers = isOwn ? users.map(({ id }) => id) : [];
    return { ...about, Size: sizeJson(unpacked), Kind: 'image', ImageData: { Platform: platform, Containers: containers, Size: { Unpacked: unpacked } } };
  });
}

const sizeJson = (unpacked: number): Json => ({ Total: unpacked, Content: 0 });

/** Digest of the manifest that an attestation of BuildKit is about. */
function attestedBy({ annotations }: OciDescriptor): string | undefined {
  return annotations?.['vnd.docker.reference.type'] === 'attestation-manifest' ? annotations['vnd.docker.reference.digest'] : undefined;
}

function platformOf({ config }: Image): OciPlatform {
  const { architecture, os, variant, 'os.version': osVersion } = config;
  return { architecture, os, ...(osVersion === undefined ? {} : { 'os.version': osVersion }), ...(variant === undefined ? {} : { variant }) };
}
