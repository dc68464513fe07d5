/** Translates exporters, by which a client says what it wants of a build: images here, or files there. */
import { internal } from '../../errors/engine-error.js';
import { canonicalString, parseReference, withDefaultTag, familiarString } from '../../images/reference.js';
import type { BuildOutput, ResultFiles } from '../../ports/build.js';
import { inStep, type OrderedBuild } from './ordered-build.js';
import type { SolveRequest } from './proto/gen/control_pb.js';
import { sendBytes } from './session-services.js';
import { sendTree } from './send-tree.js';

/** Exporters that send files to the client. */
const FILES = new Set(['local', 'tar']);

interface ImageName {
  /** Such as `docker.io/library/app:latest`. */
  readonly canonical: string;
  /** Such as `app:latest`. */
  readonly familiar: string;
}

/** The exporters of a request; old clients have one, in other members. */
function exportersOf(request: SolveRequest): readonly { type: string; attrs: ReadonlyMap<string, string> }[] {
  if (request.exporters.length === 0 && request.exporterDeprecated !== '')
    return [{ type: request.exporterDeprecated, attrs: new Map(Object.entries(request.exporterAttrsDeprecated)) }];
  return request.exporters.map(({ type, attrs }) => ({ type, attrs: new Map(Object.entries(attrs)) }));
}

/** @throws EngineError for exporters that are not there. */
export async function outputsOf(
  build: OrderedBuild,
  pack: (directory: string) => AsyncIterable<Uint8Array>,
): Promise<BuildOutput[]> {
  const { request } = build.job;
  return exportersOf(request).map(({ type, attrs }, index) => {
    if (isImage(type)) return { kind: 'image', names: namesOf(attrs).map(({ familiar }) => familiar) };
    if (!FILES.has(type)) throw internal(`exporter "${type}" could not be found`);
    const take = async (results: readonly ResultFiles[]): Promise<void> => {
      build.taken.add(index);
      if (type === 'tar') await sendArchive(build, index, results, pack);
      else await sendFiles(build, index, results, attrs.get('platform-split'));
    };
    return { kind: 'files', take };
  });
}

/** @throws EngineError when the engine made nothing of what is to go to the client. */
export function requireTaken({ job, taken }: OrderedBuild): void {
  const left = exportersOf(job.request).find(({ type }, index) => FILES.has(type) && !taken.has(index));
  if (left !== undefined) throw internal(`exporter "${left.type}" is not supported by this engine yet`);
}

/** The names of the images that a request makes. */
export function imageNames(request: SolveRequest): ImageName[] {
  return exportersOf(request).flatMap(({ type, attrs }) => (isImage(type) ? namesOf(attrs) : []));
}

function isImage(type: string): boolean {
  return type === 'moby' || type === 'image';
}

function namesOf(attrs: ReadonlyMap<string, string>): ImageName[] {
  return (attrs.get('name') ?? '')
    .split(',')
    .filter((name) => name !== '')
    .map((name) => {
      const reference = parseReference(name);
      if (reference.digest !== undefined) throw internal('build tag cannot contain a digest');
      const tagged = withDefaultTag(reference);
      return { canonical: canonicalString(tagged), familiar: familiarString(tagged) };
    });
}

/** Files of several platforms come in directories of their own. */
async function sendFiles(
  build: OrderedBuild,
  index: number,
  results: readonly ResultFiles[],
  split: string | undefined,
): Promise<void> {
  const session = await build.session();
  const metadata = { 'buildkit-attachable-exporter-id': String(index) };
  const { signal } = build.job;
  const isSplit = results.length > 1 ? split !== 'false' : split === 'true';
  await inStep(build, 'exporting to client directory', 'copying files', async (sent) => {
    for (const { directory, platform } of results) {
      const below = isSplit ? { below: platform.replaceAll('/', '_') } : {};
      await sendTree(session, directory, { metadata, signal, sent, ...below });
    }
  });
}

/** An archive has the files of the first result. */
async function sendArchive(
  build: OrderedBuild,
  index: number,
  [first]: readonly ResultFiles[],
  pack: (directory: string) => AsyncIterable<Uint8Array>,
): Promise<void> {
  if (first === undefined) return;
  const session = await build.session();
  const metadata = { 'buildkit-attachable-exporter-id': String(index) };
  const { signal } = build.job;
  await inStep(build, 'exporting to client tarball', 'sending tarball', (sent) =>
    sendBytes(session, metadata, pack(first.directory), { signal, sent }),
  );
}
