/** The client's directories that have names: each is brought here once, whichever stages read it. */
import { orNoFile } from '../../../build/files/small-file.js';
import { parseIgnoreFile } from '../../../build/dockerfile/ignore-file.js';
import { duringTransfer } from '../../../build/transfer-status.js';
import type { BuildContext, BuildObserver } from '../../../ports/build.js';
import { ClientContext, transferOf } from './contexts.js';
import type { Vertices } from './vertices.js';

/** Where the ignore file of a directory is. */
const IGNORE_FILE = '.dockerignore';

export class ContextDirectories {
  readonly #directories = new Map<string, ClientContext>();

  constructor(
    private readonly vertices: Vertices,
    private readonly observer: BuildObserver,
  ) {}

  get(name: string, context: BuildContext): ClientContext {
    const known = this.#directories.get(name);
    if (known) return known;
    const ignore = this.vertices.during(
      `[context ${name}] load ${IGNORE_FILE}`,
      (digest) =>
        duringTransfer(this.observer, digest, transferOf(name), async (bytes) =>
          parseIgnoreFile((await orNoFile(context.readFile(IGNORE_FILE, bytes))) ?? ''),
        ),
      ['context', name, IGNORE_FILE],
    );
    ignore.catch(() => undefined);
    const names = { step: `[context ${name}] load from client`, source: name };
    const directory = new ClientContext(context, names, () => ignore);
    this.#directories.set(name, directory);
    return directory;
  }
}
