/** Brings the Dockerfile and its ignore file here, which are there also when the ignore file leaves them out. */
import { readSmallFiles } from '../../build/files/small-file.js';
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
      ? await readSmallFiles([filename, ...others], (name) => context.readFile(name))
      : await build.directory(dockerfileDirectory).smallFiles([filename, ignoreFile, ...others], bytes);
    const found = [filename, ...others].map((name) => files.get(name));
    const text = found.find((file) => Buffer.isBuffer(file));
    if (text === undefined) throw unread(filename, found[0]);
    const readFile: BuildContext['readFile'] = async (path, bytes) => {
      if (path !== ignoreFile || hasDockerfile) return context.readFile(path, bytes);
      const file = files.get(path);
      return Buffer.isBuffer(file) ? file : undefined;
    };
    const tree: BuildContext['tree'] = (selection, signal, bytes) => context.tree(selection, signal, bytes);
    return { name: filename, text, vertex, context: { readFile, tree } };
  });
}

function unread(filename: string, why: Buffer | Error | undefined): Error {
  const reason = why instanceof Error ? why.message : `open ${filename}: no such file or directory`;
  return internal(`failed to read dockerfile: ${reason}`);
}
