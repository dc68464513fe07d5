/** Sends what a build has made to its client: files, one archive of them, or an image in an archive. */
import { parse } from 'node:path';
import type { ExportOptions, ExportSteps, ImageExport } from '../../build/outputs/image-export.js';
import type { FileStatements, StatementOrder } from '../../build/outputs/file-statements.js';
import { invalid } from '../../errors/engine-error.js';
import { duringTransfer } from '../../build/transfer-status.js';
import type { CountBytes, PlatformResult, ResultFiles } from '../../ports/build.js';
import { ClientContent } from './client-content.js';
import { dateEpoch, exportOptions, flag, statementPrefix, type Exporter } from './export-attrs.js';
import { inPart, inStep, type OrderedBuild } from './ordered-build.js';
import { sendTree } from './send-tree.js';
import { sendBytes } from './session-services.js';

/** The name of the directory of content that a client offers for an image. */
const EXPORT_STORE = 'export';

export interface SendParts {
  /** Packs a directory into a tar, with one time for all files if that is given. */
  readonly pack: (directory: string, mtimeSeconds?: number) => AsyncIterable<Uint8Array>;
  /** Makes an image that leaves the engine. */
  readonly prepare: (
    results: readonly PlatformResult[],
    options: ExportOptions,
    steps: ExportSteps,
    signal: AbortSignal,
  ) => Promise<ImageExport>;
  /** Writes statements about files. */
  readonly state: (order: StatementOrder, signal: AbortSignal) => Promise<FileStatements>;
}

/** Files of several platforms come in directories of their own. */
export async function sendFiles(
  build: OrderedBuild,
  exporter: Exporter,
  results: readonly ResultFiles[],
  parts: Pick<SendParts, 'state'>,
): Promise<void> {
  const { attrs, index } = exporter;
  const session = await build.session();
  const { signal } = build.job;
  const isSplit = flag(attrs, 'platform-split') ?? results.length > 1;
  const mtimeSeconds = dateEpoch(attrs, build.attrs.buildArgs);
  const claims = isSplit || results.length === 1 ? undefined : new Claims();
  const send = async (files: ResultFiles, sent: CountBytes): Promise<void> => {
    const part = files.platform.replaceAll('/', '_');
    const below = isSplit ? part : undefined;
    const options = { metadata: metadataOf(index), signal, sent, mtimeSeconds, below };
    await sendTree(session, files.directory, { ...options, claim: claims?.by(files.platform) });
    const suffix = !isSplit && results.length > 1 ? `.${part}` : '';
    const statements = await stated(build, exporter, files, suffix, parts);
    try {
      if (statements !== undefined) await sendTree(session, statements.directory, options);
    } finally {
      await statements?.close();
    }
  };
  await inStep(build, 'exporting to client directory', '', async (_sent, vertex) => {
    for (const files of results) {
      const shown = isSplit || results.length > 1 ? `copying files ${files.platform}` : 'copying files';
      await duringTransfer(build.job.progress, vertex, shown, (sent) => send(files, sent));
    }
  });
}

/** Files of several platforms that come in one directory: each path is of one of them, as no file may be lost. */
class Claims {
  readonly #owners = new Map<string, string>();

  by(platform: string): (path: string) => void {
    return (path) => {
      const owner = this.#owners.get(path);
      if (owner !== undefined)
        throw invalid(`cannot overwrite ${path} from ${owner} with ${platform} when split option is disabled`);
      this.#owners.set(path, platform);
    };
  }
}

/** Writes what is attested of the files of a result; undefined: nothing is. @param suffix tells platforms apart. */
async function stated(
  { job: { signal } }: OrderedBuild,
  { attest, attrs }: Exporter,
  files: ResultFiles,
  suffix: string,
  { state }: Pick<SendParts, 'state'>,
): Promise<FileStatements | undefined> {
  if (attest === undefined) return undefined;
  const nameOf = ({ fileName }: { readonly fileName: string }): string => {
    const { name, ext } = parse(fileName);
    return `${statementPrefix(attrs)}${name}${suffix}${ext}`;
  };
  return state({ root: files.directory, attestations: attest(files), nameOf }, signal);
}

/** @param files are the results, and the directory of all of them, which becomes the archive. */
export async function sendArchive(
  build: OrderedBuild,
  exporter: Exporter,
  [results, together]: readonly [results: readonly ResultFiles[], together: string],
  parts: SendParts,
): Promise<void> {
  const { index, attrs } = exporter;
  const session = await build.session();
  const { signal } = build.job;
  const mtimeSeconds = dateEpoch(attrs, build.attrs.buildArgs);
  /** The statements come first, because the end of an archive is its end. */
  const archive = async function* (): AsyncGenerator<Uint8Array> {
    for (const files of results) {
      const below = results.length > 1 ? `${files.platform.replaceAll('/', '_')}/` : '';
      const statements = await stated(build, exporter, files, '', parts);
      try {
        if (statements !== undefined) yield* statements.tar(below, mtimeSeconds);
      } finally {
        await statements?.close();
      }
    }
    yield* parts.pack(together, mtimeSeconds);
  };
  await inStep(build, 'exporting to client tarball', 'sending tarball', (sent) =>
    sendBytes(session, metadataOf(index), archive(), { signal, sent }),
  );
}

/** Sends an image as one archive, or its blobs to a directory of content. */
export async function sendImage(
  build: OrderedBuild,
  exporter: Exporter,
  results: readonly PlatformResult[],
  { prepare }: SendParts,
): Promise<void> {
  const { type, attrs, index } = exporter;
  const kind = type === 'docker' ? 'docker' : 'oci';
  const { job, attrs: frontend } = build;
  const options = exportOptions(kind, exporter, frontend.buildArgs);
  const session = await build.session();
  await inStep(build, `exporting to ${kind} image format`, '', async (_sent, vertex) => {
    const steps: ExportSteps = (name, action) => inPart(build, vertex, name, action);
    const image = await prepare(results, options, steps, job.signal);
    try {
      const response = responseOf(image, options.names);
      for (const [key, value] of Object.entries(response)) build.response.set(key, value);
      if (flag(attrs, 'tar') === false) {
        const content = new ClientContent(() => build.session(), EXPORT_STORE);
        await steps('copying blobs', async () => {
          for (const blob of image.content()) await content.write(blob, job.signal);
        });
        return;
      }
      const headers = Object.entries(response).map(([key, value]) => [`exporter-md-${key}`, value]);
      const metadata = { ...metadataOf(index), ...Object.fromEntries(headers) };
      await steps('sending tarball', () => sendBytes(session, metadata, image.tar(), { signal: job.signal }));
    } finally {
      await image.close();
    }
  });
}

function responseOf({ descriptor, configDigest }: ImageExport, names: readonly string[]): Record<string, string> {
  return {
    'containerimage.digest': descriptor.digest,
    'containerimage.descriptor': Buffer.from(JSON.stringify(descriptor)).toString('base64'),
    ...(configDigest !== undefined && { 'containerimage.config.digest': configDigest }),
    ...(names.length > 0 && { 'image.name': names.join(',') }),
  };
}

function metadataOf(index: number): Record<string, string> {
  return { 'buildkit-attachable-exporter-id': String(index) };
}
