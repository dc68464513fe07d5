/** Translates exporters, by which a client says what it wants of a build: images here, or files there. */
import { internal, invalid } from '../../errors/engine-error.js';
import type { BuildCredentials, BuildOutput, PlatformResult, ResultFiles } from '../../ports/build.js';
import {
  flag,
  namesOf,
  requireReadable,
  rewriteEpoch,
  statementPrefix,
  type Exporter,
  type ImageName,
} from './export-attrs.js';
import { attesting, type BuildOrigin } from './image-attestations.js';
import { canBeStored, needsDocuments, type PushParts, storedDocuments, wholePush } from './image-push.js';
import { sendArchive, sendFiles, sendImage, type SendParts } from './client-outputs.js';
import { inPart, loginOf, stepDigest, type OrderedBuild } from './ordered-build.js';
import type { SolveRequest } from './proto/gen/control_pb.js';
import { parseReference, type ImageReference } from '../../images/reference.js';

/** Exporters whose result goes to the client. */
const CLIENT: ReadonlySet<string> = new Set(['local', 'tar', 'oci', 'docker']);

/** Each is made by itself, of all files of the result. */
const MAX_OUTPUTS = 100;
const MAX_SHOWN_CHARS = 200;

const NO_ATTESTATIONS =
  'attestations are kept in the index of an image, which this store does not have: push the image (--push), have it ' +
  'written (--output type=oci,dest=FILE), or start the daemon with --feature supervisor-snapshotter';

export interface ExporterParts extends SendParts, PushParts {
  /** The store has images as registries have them, with indexes. */
  readonly keepsIndexes: boolean;
  /** Pushes an image that is in the store. Resolves with the digest of its manifest. */
  readonly push: (
    reference: ImageReference,
    credentials: BuildCredentials | undefined,
    signal: AbortSignal,
  ) => Promise<string>;
}

/** The exporters of a request; old clients have one, in other members. */
function exportersOf(request: SolveRequest): readonly Exporter[] {
  if (request.exporters.length === 0 && request.exporterDeprecated !== '') {
    const attrs = new Map(Object.entries(request.exporterAttrsDeprecated));
    return [{ type: request.exporterDeprecated, attrs, index: 0 }];
  }
  return request.exporters.map(({ type, attrs }, index) => ({ type, attrs: new Map(Object.entries(attrs)), index }));
}

/** @throws EngineError for exporters that are not there, and for what they cannot do. */
export function outputsOf(build: OrderedBuild, origin: BuildOrigin, parts: ExporterParts): BuildOutput[] {
  const exporters = exportersOf(build.job.request);
  if (exporters.length > MAX_OUTPUTS) throw invalid(`a build has at most ${MAX_OUTPUTS} outputs`);
  return exporters.flatMap((given): BuildOutput | BuildOutput[] => {
    const { type, index, attrs } = given;
    const exporter = { ...given, ...attesting(build, origin, (attrs.get('name') ?? '').split(',').filter(Boolean)) };
    if (exporter.attest !== undefined && !(parts.keepsIndexes || canAttest(exporter))) throw invalid(NO_ATTESTATIONS);
    if (exporter.attest !== undefined) statementPrefix(attrs);
    if (!isExporter(type)) throw noExporter(type);
    requireReadable(exporter, build.attrs.buildArgs);
    if (isImage(type)) return imageOutputs(build, exporter, parts);
    const taking = <T extends readonly unknown[]>(send: (...results: T) => Promise<void>) => {
      return (...results: T): Promise<void> => {
        build.taken.add(index);
        return send(...results);
      };
    };
    if (type === 'local')
      return {
        kind: 'files',
        take: taking((results: readonly ResultFiles[]) => sendFiles(build, exporter, results, parts)),
      };
    if (type === 'tar')
      return { kind: 'files', take: taking((...files) => sendArchive(build, exporter, files, parts)) };
    return {
      kind: 'result',
      take: taking((results: readonly PlatformResult[]) => sendImage(build, exporter, results, parts)),
    };
  });
}

/** Attestations are kept in the index of an image, or beside files. Most stores have no place for them. */
function canAttest({ type, attrs }: Exporter): boolean {
  return CLIENT.has(type) || (isImage(type) && flag(attrs, 'push') === true);
}

/** @throws EngineError when the engine made nothing of what is to go to the client. */
export function requireTaken({ job, taken }: OrderedBuild): void {
  const left = exportersOf(job.request).find(({ type, index }) => CLIENT.has(type) && !taken.has(index));
  if (left !== undefined) throw internal(`exporter "${left.type}" is not supported by this engine yet`);
}

/** The names of the images that a request makes. */
export function imageNames(request: SolveRequest): ImageName[] {
  return exportersOf(request).flatMap(({ type, attrs }) => (isImage(type) ? namesOf(attrs) : []));
}

/** Tells whether the result is an image in the store or in a registry. */
export function isImage(type: string): boolean {
  return type === 'moby' || type === 'image';
}

export function isExporter(type: string): boolean {
  return isImage(type) || CLIENT.has(type);
}

export function noExporter(type: string): Error {
  return internal(`exporter ${JSON.stringify(type.slice(0, MAX_SHOWN_CHARS))} could not be found`);
}

/** An image goes into the store, and from there to its registry; one that the store cannot keep goes there at once. */
function imageOutputs(build: OrderedBuild, exporter: Exporter, parts: ExporterParts): BuildOutput[] {
  const { attrs } = exporter;
  const { keepsIndexes } = parts;
  const leavesWhole = flag(attrs, 'push') === true && !canBeStored(build, exporter, keepsIndexes);
  const isKept = keepsIndexes || build.attrs.platforms.length <= 1;
  const isStored = !leavesWhole || (isKept && !flag(attrs, 'push-by-digest'));
  const epoch = rewriteEpoch(attrs, build.attrs.buildArgs);
  const stored: BuildOutput = {
    kind: 'image',
    names: isStored ? namesOf(attrs).map(({ familiar }) => familiar) : [],
    ...(epoch !== undefined && { epoch }),
    ...(keepsIndexes && needsDocuments(build, exporter) && { documents: storedDocuments(build, exporter) }),
    ...(flag(attrs, 'push') && !leavesWhole && { named: () => pushStored(build, exporter, parts) }),
  };
  if (!leavesWhole) return [stored];
  const whole: BuildOutput = { kind: 'result', take: wholePush(build, exporter, parts) };
  return isStored ? [stored, whole] : [whole];
}

async function pushStored(build: OrderedBuild, { attrs }: Exporter, { push }: ExporterParts): Promise<void> {
  const { signal, ref } = build.job;
  for (const { canonical } of namesOf(attrs)) {
    const reference = parseReference(canonical);
    const vertex = stepDigest(ref, `pushing ${canonical}`);
    const name = `pushing ${canonical} with docker`;
    const step = { digest: vertex, inputs: [], name, cached: false, started: Date.now() };
    build.job.progress.vertex(step);
    const digest = await inPart(build, vertex, 'pushing layers', async () =>
      push(reference, await loginOf(build, reference.domain), signal),
    );
    await inPart(build, vertex, `pushing manifest for ${canonical}@${digest}`, () => Promise.resolve());
    build.job.progress.vertex({ ...step, completed: Date.now() });
  }
}
