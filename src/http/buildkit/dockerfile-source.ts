/** Brings the Dockerfile and its ignore file here, which are there also when the ignore file leaves them out. */
import { readSmallFiles, type SmallFiles } from '../../build/files/small-file.js';
import { internal, isEngineError } from '../../errors/engine-error.js';
import type { DockerfileToBuild } from '../../ports/build-dockerfile.js';
import type { BuildContext, CountBytes } from '../../ports/build.js';
import type { OpenContext } from './main-context.js';
import { inStep, type OrderedBuild } from './ordered-build.js';

const DEFAULT_NAME = 'Dockerfile';

export interface LoadedDockerfile extends DockerfileToBuild {
  /** The step that loaded it. */
  readonly vertex: string;
  /** The context, in which the ignore file of this Dockerfile is found, too. */
  readonly context: BuildContext;
}

/** @throws EngineError when it is not there. */
export async function loadDockerfile(
  build: OrderedBuild,
  { context, hasDockerfile, onlyFile }: OpenContext,
): Promise<LoadedDockerfile> {
  const { dockerfileDirectory } = build.attrs;
  const filename = (hasDockerfile ? onlyFile : undefined) ?? build.attrs.filename;
  const ignoreFile = `${filename}.dockerignore`;
  const others = filename === DEFAULT_NAME ? ['dockerfile'] : [];
  const step = `[internal] load build definition from ${filename}`;
  const load = async (bytes: CountBytes, vertex: string): Promise<{ files: SmallFiles; vertex: string }> => {
    const files = hasDockerfile
      ? readSmallFiles([filename, ...others], (name) => context.readFile(name))
      : build.directory(dockerfileDirectory).smallFiles([filename, ignoreFile, ...others], bytes);
    return { files: await files, vertex };
  };
  const { files, vertex } = await inStep(build, step, 'transferring dockerfile:', load).catch((error: unknown) => {
    throw isEngineError(error, 'invalid') ? unread(error) : error;
  });
  const found = [filename, ...others].map((name) => files.get(name));
  const text = found.find((file) => Buffer.isBuffer(file));
  if (text === undefined) {
    const [why] = found;
    throw unread(why instanceof Error ? why : new Error(`open ${filename}: no such file or directory`));
  }
  const readFile: BuildContext['readFile'] = async (path, bytes) => {
    if (path !== ignoreFile || hasDockerfile) return context.readFile(path, bytes);
    const file = files.get(path);
    return Buffer.isBuffer(file) ? file : undefined;
  };
  const tree: BuildContext['tree'] = (selection, signal, bytes) => context.tree(selection, signal, bytes);
  return { name: filename, text, vertex, context: { readFile, tree } };
}

function unread(cause: Error): Error {
  return internal(`failed to read dockerfile: ${cause.message}`, { cause });
}
