/** Brings the Dockerfile and its ignore file here, which are there also when the ignore file leaves them out. */
import { EngineError } from '../../errors/engine-error.js';
import { inStep, type OrderedBuild } from './ordered-build.js';

const DEFAULT_NAME = 'Dockerfile';

export interface LoadedDockerfile {
  readonly name: string;
  readonly text: Buffer;
  /** The step that loaded it. */
  readonly vertex: string;
  /** Files of its directory by their names, as far as they are there. */
  readonly files: ReadonlyMap<string, Buffer>;
}

/** @throws EngineError when it is not there. */
export async function loadDockerfile(build: OrderedBuild): Promise<LoadedDockerfile> {
  const { filename, dockerfileDirectory } = build.attrs;
  const names = [filename, `${filename}.dockerignore`, ...(filename === DEFAULT_NAME ? ['dockerfile'] : [])];
  const step = `[internal] load build definition from ${filename}`;
  return inStep(build, step, 'transferring dockerfile:', async (bytes, vertex) => {
    const files = await build.directory(dockerfileDirectory).smallFiles(names, bytes);
    const text = files.get(filename) ?? (filename === DEFAULT_NAME ? files.get('dockerfile') : undefined);
    if (text === undefined)
      throw new EngineError('internal', `failed to read dockerfile: open ${filename}: no such file or directory`);
    return { name: filename, text, vertex, files };
  });
}
