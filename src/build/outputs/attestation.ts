/** Attestations: statements about an image that lie beside it in its index, as clients of BuildKit look for them. */
import type { Digest } from '../../ports/storage.js';
import { goJson } from '../../text/go-json.js';
import { described, digestOf, type Document, manifestDocument, MEDIA_TYPES } from './image-documents.js';

export const STATEMENT_TYPE = 'https://in-toto.io/Statement/v0.1';
const BLOB_TYPE = 'application/vnd.in-toto+json';
const UNKNOWN = { architecture: 'unknown', os: 'unknown' };

export interface Attestation {
  /** Names the form of the predicate, such as `https://slsa.dev/provenance/v0.2`. */
  readonly predicateType: string;
  readonly predicate: object;
  /** Names of the image, as package URLs; the statement is about the manifest under each of them. */
  readonly subjects: readonly string[];
}

/** @param image digest of the manifest that the attestations are about. */
export function attestationDocuments(
  attestations: readonly Attestation[],
  image: Digest,
): { readonly manifest: Document; readonly blobs: readonly Document[] } {
  const statements = attestations.map((one) => statementOf(one, image));
  const config = blobOf(
    MEDIA_TYPES.oci.config,
    goJson(
      {
        ...UNKNOWN,
        config: {},
        rootfs: { type: 'layers', diff_ids: statements.map(({ descriptor }) => descriptor.digest) },
      },
      0,
    ),
  );
  const layers = statements.map(({ descriptor }) => descriptor);
  const { bytes, descriptor } = manifestDocument('oci', config.descriptor, layers);
  const reference = { 'vnd.docker.reference.digest': image, 'vnd.docker.reference.type': 'attestation-manifest' };
  return {
    manifest: { bytes, descriptor: described(descriptor, reference, UNKNOWN) },
    blobs: [config, ...statements],
  };
}

function statementOf({ predicateType, predicate, subjects }: Attestation, image: Digest): Document {
  const digest = { sha256: image.slice('sha256:'.length) };
  const text = goJson({
    _type: STATEMENT_TYPE,
    predicateType,
    subject: subjects.map((name) => ({ name, digest })),
    predicate,
  });
  const { bytes, descriptor } = blobOf(BLOB_TYPE, text);
  return { bytes, descriptor: described(descriptor, { 'in-toto.io/predicate-type': predicateType }) };
}

function blobOf(mediaType: string, text: string): Document {
  const bytes = Buffer.from(text);
  return { bytes, descriptor: { mediaType, digest: digestOf(bytes), size: bytes.length } };
}
