/** Steps that bring files of the client here: its contexts, and the files that a Dockerfile has in itself. */
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { InlineFile } from '../../../build/dockerfile/ast.js';
import { ignoreFileNames, parseIgnoreFile } from '../../../build/dockerfile/ignore-file.js';
import { cleanPath } from '../../../build/files/paths.js';
import { duringTransfer } from '../../../build/transfer-status.js';
import { orNoFile } from '../../../build/files/small-file.js';
import { invalid } from '../../../errors/engine-error.js';
import type { BuildContext, BuildRequest } from '../../../ports/build.js';
import { newStep, type Operation, type PlannedStep } from './step.js';
import type { Vertices } from './vertices.js';

/** All files are asked for when steps read more paths than these: the client gets each in the head of a request. */
const MAX_PATHS = 1000;

/** The main context is called so. */
export const MAIN = 'context';

/** A context of the client's. The paths that steps read are gathered while the build is planned. */
export class ClientContext {
  readonly #paths = new Set<string>();
  #isWhole = false;
  #step: PlannedStep | undefined;

  /** @param step is the name of the step that brings the files. @param source is what its progress calls them. */
  constructor(
    private readonly context: BuildContext,
    private readonly names: { readonly step: string; readonly source: string },
    private readonly ignore: () => Promise<readonly string[]>,
  ) {}

  /** Returns the step that brings these files and all others that are asked for. */
  step(paths: readonly string[]): PlannedStep {
    for (const path of paths) this.#follow(withoutDepths(cleanPath(path).slice(1)));
    this.#step ??= newStep({
      name: this.names.step,
      operation: this.#operation(),
      parent: undefined,
      sources: [],
      lines: undefined,
      isFresh: false,
    });
    return this.#step;
  }

  #follow(path: string): void {
    if (path === '' || this.#paths.size === MAX_PATHS) this.#isWhole = true;
    if (!this.#isWhole) this.#paths.add(path);
  }

  #operation(): Operation {
    return {
      identity: ['context', this.names.step],
      recipe: { operation: { source: { identifier: `local://${this.names.step}` } } },
      perform: async ({ tools, step, signal }) => {
        const ignore = await this.ignore();
        const follow = this.#isWhole ? [] : [...this.#paths].sort();
        const tree = await duringTransfer(tools.request.observer, step.digest, transferOf(this.names.source), (bytes) =>
          this.context.tree({ ignore, follow }, signal, bytes),
        );
        tools.atEnd(() => tree.release());
        const { directory, digests } = tree;
        return { layer: undefined, files: { directory, digests, ignore, isMapped: false } };
      },
    };
  }
}

/** Returns the directory in which a pattern may match at any depth; clients know no `**`. */
function withoutDepths(path: string): string {
  const parts = path.split('/');
  const at = parts.indexOf('**');
  return at < 0 ? path : parts.slice(0, at).join('/');
}

/** Reads the patterns of the files that are left out of the main context. */
export async function loadIgnoreFile(
  { context, dockerfile, observer }: BuildRequest,
  vertices: Vertices,
): Promise<string[]> {
  return vertices.during('[internal] load .dockerignore', (digest) =>
    duringTransfer(observer, digest, transferOf(MAIN), async (bytes) => {
      for (const name of ignoreFileNames(dockerfile.name)) {
        const text = await orNoFile(context.readFile(name, bytes));
        if (text !== undefined) return parseIgnoreFile(text);
      }
      return [];
    }),
  );
}

/** Returns how clients know the progress of files with this name. */
export function transferOf(source: string): string {
  return `transferring ${source}:`;
}

/** Returns the step that writes the files which an instruction has in itself. */
export function inlineStep(files: readonly InlineFile[]): PlannedStep {
  const named = files.map(({ name, content }) => ({ name: inlineName(name), content }));
  const operation: Operation = {
    identity: ['inline', named],
    recipe: { operation: { file: { actions: named.map(({ name }) => ({ Action: { mkfile: { path: name } } })) } } },
    perform: async ({ tools }) => {
      const directory = join(await tools.directory('build-inline-'), 'root');
      await mkdir(directory, { mode: 0o755 });
      for (const { name, content } of named) await writeFile(join(directory, name), content, { mode: 0o644 });
      return { layer: undefined, files: { directory, ignore: [], isMapped: false } };
    },
  };
  const name = '[internal] preparing inline document';
  return newStep({ name, operation, parent: undefined, sources: [], lines: undefined, isFresh: false });
}

/** @throws EngineError invalid for a name that is none of a file. */
export function inlineName(name: string): string {
  const base = basename(cleanPath(name));
  if (base === '' || base !== name || name.includes('\0')) throw invalid(`invalid name of an inline file: ${name}`);
  return base;
}
