/** Brings the Dockerfile and its ignore file here, which are there also when the ignore file leaves them out. */
import { internal } from '../../errors/engine-error.js';
import type { BuildContext } from '../../ports/build.js';
import type { OpenContext } from './main-context.js';
import { inStep, type OrderedBuild } from './ordered-build.js';

const DEFAULT_NAME = 'Dockerfile';

export interface LoadedDockerfile {
  readonly name: string;
  readonly text: Buffer;
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
  return inStep(build, step, 'transferring dockerfile:', async (bytes, vertex) => {
    const files = hasDockerfile
      ? await smallFiles(context, [filename, ...others])
      : await build.directory(dockerfileDirectory).smallFiles([filename, ignoreFile, ...others], bytes);
    const text = [filename, ...others].map((name) => files.get(name)).find((file) => file !== undefined);
    if (text === undefined) throw internal(`failed to read dockerfile: open ${filename}: no such file or directory`);
    const readFile: BuildContext['readFile'] = async (path, bytes) =>
      path === ignoreFile && !hasDockerfile ? files.get(path) : context.readFile(path, bytes);
    const tree: BuildContext['tree'] = (selection, signal, bytes) => context.tree(selection, signal, bytes);
    return { name: filename, text, vertex, context: { readFile, tree } };
  });
}

async function smallFiles(context: BuildContext, names: readonly string[]): Promise<ReadonlyMap<string, Buffer>> {
  const files = new Map<string, Buffer>();
  for (const name of names) {
    const file = await context.readFile(name);
    if (file !== undefined) files.set(name, file);
  }
  return files;
}
