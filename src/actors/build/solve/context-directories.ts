/** The client's directories that have names: each is brought here once, whichever stages read it. */
import { parseIgnoreFile } from '../../../build/dockerfile/ignore-file.js';
import type { BuildContext } from '../../../ports/build.js';
import { ClientContext } from './contexts.js';
import type { Vertices } from './vertices.js';

/** Where the ignore file of a directory is. */
const IGNORE_FILE = '.dockerignore';

export class ContextDirectories {
  readonly #directories = new Map<string, ClientContext>();

  constructor(private readonly vertices: Vertices) {}

  get(name: string, context: BuildContext): ClientContext {
    const known = this.#directories.get(name);
    if (known) return known;
    const ignore = this.vertices.during(
      `[context ${name}] load ${IGNORE_FILE}`,
      async () => parseIgnoreFile((await context.readFile(IGNORE_FILE)) ?? ''),
      ['context', name, IGNORE_FILE],
    );
    ignore.catch(() => undefined);
    const directory = new ClientContext(context, `[context ${name}] load from client`, ignore);
    this.#directories.set(name, directory);
    return directory;
  }
}
