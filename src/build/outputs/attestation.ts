/** Attestations: statements about an image that lie beside it in its index, as clients of BuildKit look for them. */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { dataLoss } from '../../errors/engine-error.js';
import type { JsonFile } from '../../ports/build.js';
import type { ImageDocument } from '../../ports/image-set.js';
import type { Digest } from '../../ports/storage.js';
import { goJson } from '../../text/go-json.js';
import { described, digestOf, manifestDocument, MEDIA_TYPES } from './image-documents.js';

export const STATEMENT_TYPE = 'https://in-toto.io/Statement/v0.1';
const BLOB_TYPE = 'application/vnd.in-toto+json';
const UNKNOWN = { architecture: 'unknown', os: 'unknown' };

export interface Attestation {
  /** Names the form of the predicate, such as `https://slsa.dev/provenance/v0.2`. */
  readonly predicateType: string;
  readonly predicate: AttestedPredicate;
  /** Names of the image, as package URLs; the statement is about the manifest under each of them. */
  readonly subjects: readonly string[];
  /** The name of a file with the statement, where there is no image to keep it. */
  readonly fileName: string;
}

/** The predicate itself, or a file with it. */
export type AttestedPredicate =
  | { readonly kind: 'value'; readonly value: object }
  | ({ readonly kind: 'file' } & JsonFile);

const PIECE_BYTES = 256 << 10;

/** @param image digest of the manifest that the attestations are about. */
export async function attestationDocuments(
  attestations: readonly Attestation[],
  image: Digest,
): Promise<{ readonly manifest: ImageDocument; readonly blobs: readonly ImageDocument[] }> {
  const statements: ImageDocument[] = [];
  for (const attestation of attestations) statements.push(await statementOf(attestation, image));
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

/** Returns the JSON of a statement in parts: texts, and the file that has its predicate. */
export function statementParts(
  { predicateType, predicate }: Pick<Attestation, 'predicateType' | 'predicate'>,
  subject: readonly object[],
): readonly [head: string, ...rest: (string | JsonFile)[]] {
  const head = { _type: STATEMENT_TYPE, predicateType, subject };
  if (predicate.kind === 'value') return [goJson({ ...head, predicate: predicate.value })];
  return [`${goJson(head).slice(0, -'\n}'.length)},\n  "predicate": `, predicate, '\n}'];
}

async function statementOf(attestation: Attestation, image: Digest): Promise<ImageDocument> {
  const { predicateType, subjects } = attestation;
  const digest = { sha256: image.slice('sha256:'.length) };
  const parts = statementParts(
    attestation,
    subjects.map((name) => ({ name, digest })),
  );
  const { bytes, descriptor } = await joined(parts);
  return { bytes, descriptor: described(descriptor, { 'in-toto.io/predicate-type': predicateType }) };
}

/** A file may be long, so that it is read and hashed in pieces. */
async function joined(parts: readonly (string | JsonFile)[]): Promise<ImageDocument> {
  const sizes = parts.map((part) => (typeof part === 'string' ? Buffer.byteLength(part) : part.sizeBytes));
  const size = sizes.reduce((sum, one) => sum + one, 0);
  const bytes = Buffer.allocUnsafe(size);
  const hash = createHash('sha256');
  let at = 0;
  for (const part of parts) {
    if (typeof part === 'string') {
      const end = at + bytes.write(part, at);
      hash.update(bytes.subarray(at, end));
      at = end;
      continue;
    }
    for await (const piece of piecesOf(part, bytes.subarray(at, at + part.sizeBytes))) {
      hash.update(piece);
      at += piece.length;
    }
  }
  return { bytes, descriptor: { mediaType: BLOB_TYPE, digest: `sha256:${hash.digest('hex')}`, size } };
}

/** Reads a file into the target and yields each piece of it. */
async function* piecesOf({ path }: JsonFile, target: Buffer): AsyncGenerator<Buffer> {
  const file = await open(path);
  try {
    for (let at = 0; at < target.length;) {
      const { bytesRead } = await file.read(target, at, Math.min(PIECE_BYTES, target.length - at));
      if (bytesRead === 0) throw dataLoss(`${path} is shorter than it was`);
      yield target.subarray(at, at + bytesRead);
      at += bytesRead;
    }
  } finally {
    await file.close();
  }
}

function blobOf(mediaType: string, text: string): ImageDocument {
  const bytes = Buffer.from(text);
  return { bytes, descriptor: { mediaType, digest: digestOf(bytes), size: bytes.length } };
}
