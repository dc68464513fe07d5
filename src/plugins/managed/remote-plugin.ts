/** Fetches plugins from registries: documents into memory, layers into files. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Transform, type TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { dataLoss, internal, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import { familiarName, familiarString, type ImageReference } from '../../images/reference.js';
import type { Digest } from '../../ports/storage.js';
import { type Grant, type RegistryAccess, withGrant } from '../../registry/access.js';
import { blobUrl, type FetchedManifest, getBlob, getManifest } from '../../registry/client.js';
import { factsOf, statusError, transportError } from '../../registry/failure.js';
import { type HttpRequest, readBody, sendRequest } from '../../registry/http.js';
import { type Descriptor, type ImageManifest, parseManifest } from '../../registry/manifest.js';
import { bestManifest, hostPlatform } from '../../registry/platform.js';
import { explainFailure } from '../../registry/resolve.js';
import { pullScope } from '../../registry/token.js';
import { usableBytes } from '../../sys/files/usable-bytes.js';
import { PLUGIN_CONFIG_TYPE } from './manifest.js';

/** A plugin in a registry. */
export interface RemotePlugin {
  /** Digest of what the reference names. */
  readonly digest: Digest;
  readonly manifest: Buffer;
  readonly config: Buffer;
  /** The lowest one first. */
  readonly layers: readonly Descriptor[];
}

const MAX_ATTEMPTS = 5;
const MAX_ERROR_BYTES = 64 << 10;
const CONFIG_TYPES = new Set([PLUGIN_CONFIG_TYPE]);

/**
 * Fetches manifest and configuration.
 * @throws EngineError invalid for what is no plugin, not-found, and the registry's other failures.
 */
export async function fetchPlugin(
  access: RegistryAccess,
  reference: ImageReference,
  signal: AbortSignal,
): Promise<RemotePlugin> {
  const { path } = reference;
  const options = { limits: access.limits, signal };
  const manifestAt = (wanted: string): Promise<FetchedManifest> =>
    withGrant(access, pullScope(path), signal, (grant) => getManifest(grant, path, wanted, options));
  try {
    const top = await manifestAt(reference.digest ?? reference.tag ?? 'latest');
    const { bytes, manifest } = await resolve(top, reference, manifestAt);
    const config = await withGrant(access, pullScope(path), signal, (grant) =>
      getBlob(grant, path, manifest.config, options),
    );
    return { digest: top.digest, manifest: bytes, config, layers: manifest.layers };
  } catch (error) {
    if (isEngineError(error) && error.code === 'NOT_AN_IMAGE')
      throw invalid(`did not find plugin config for specified reference ${familiarString(reference)}`, {
        code: 'NOT_A_PLUGIN',
        cause: error,
      });
    throw explainFailure(error, {
      familiarName: familiarName(reference),
      familiarString: familiarString(reference),
    });
  }
}

async function resolve(
  top: FetchedManifest,
  reference: ImageReference,
  manifestAt: (digest: string) => Promise<FetchedManifest>,
): Promise<{ readonly bytes: Buffer; readonly manifest: ImageManifest }> {
  const name = familiarString(reference);
  const parsed = parseManifest(top.bytes, top.mediaType, name, CONFIG_TYPES);
  if (parsed.kind === 'image') return { bytes: top.bytes, manifest: parsed };
  const entry = bestManifest(parsed.manifests, hostPlatform());
  if (!entry) throw notFound(`no matching manifest of plugin ${name} for this platform`, { code: 'NO_PLATFORM' });
  const child = await manifestAt(entry.digest);
  const manifest = parseManifest(child.bytes, child.mediaType, name, CONFIG_TYPES);
  if (manifest.kind === 'image') return { bytes: child.bytes, manifest };
  throw invalid('unsupported manifest: an index inside an index', { code: 'UNSUPPORTED_MANIFEST' });
}

export interface BlobOrder {
  readonly path: string;
  readonly descriptor: Pick<Descriptor, 'digest' | 'sizeBytes'>;
  /** The file that is made. */
  readonly file: string;
  readonly onBytes: (bytes: number) => void;
}

/**
 * Downloads a blob to a file, again when the connection breaks. @throws EngineError data-loss for other bytes; internal
 * with the code ENOSPC for more than the disk has room for, of which nothing is fetched.
 */
export async function downloadBlob(access: RegistryAccess, order: BlobOrder, signal: AbortSignal): Promise<void> {
  const { digest, sizeBytes } = order.descriptor;
  if (sizeBytes > (await usableBytes(dirname(order.file))))
    throw internal(`failed to register layer: ${digest}: no space left on device`, { code: 'ENOSPC' });
  for (let attempt = 1; ; attempt++) {
    try {
      return await withGrant(access, pullScope(order.path), signal, (grant) => download(access, grant, order, signal));
    } catch (error) {
      await rm(order.file, { force: true });
      if (factsOf(error).retryable !== true || attempt >= MAX_ATTEMPTS || signal.aborted) throw error;
    }
  }
}

async function download(
  { limits }: RegistryAccess,
  { endpoint, authorization }: Grant,
  { path, descriptor: { digest, sizeBytes }, file, onBytes }: BlobOrder,
  signal: AbortSignal,
): Promise<void> {
  const request: HttpRequest = {
    method: 'GET',
    url: blobUrl(endpoint, path, digest),
    headers: authorization === undefined ? {} : { authorization },
    tls: endpoint.tls,
    limits,
    signal,
  };
  const response = await sendRequest(request);
  if (response.statusCode !== 200)
    throw statusError(request, response, await readBody(request, response, MAX_ERROR_BYTES));
  const check = new CheckedBytes(digest, sizeBytes, onBytes);
  response.once('error', (error) => check.destroy(transportError(request, error)));
  await pipeline(response, check, createWriteStream(file, { flags: 'wx', mode: 0o600 }));
}

/** Passes bytes on, and fails when they are more than announced or have another digest. */
class CheckedBytes extends Transform {
  readonly #hash = createHash('sha256');
  #bytes = 0;

  constructor(
    private readonly digest: Digest,
    private readonly sizeBytes: number,
    private readonly onBytes: (bytes: number) => void,
  ) {
    super();
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#bytes += chunk.length;
    if (this.#bytes > this.sizeBytes) return done(this.#wrong());
    this.#hash.update(chunk);
    this.onBytes(this.#bytes);
    done(null, chunk);
  }

  override _flush(done: TransformCallback): void {
    const isRight = this.#bytes === this.sizeBytes && `sha256:${this.#hash.digest('hex')}` === this.digest;
    done(isRight ? null : this.#wrong());
  }

  #wrong(): Error {
    return dataLoss(`filesystem layer verification failed for digest ${this.digest}`, { code: 'DIGEST_MISMATCH' });
  }
}
