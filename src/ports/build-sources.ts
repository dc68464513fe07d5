/**
 * Contract of what builds take from elsewhere: files at addresses, and trees of git repositories. This daemon fetches
 * them itself.
 */
import type { BuildRequest, ContextTree } from './build.js';

export interface RemoteOrder extends Partial<Pick<BuildRequest, 'secret' | 'sshAgent'>> {
  /** An address, or a repository in one of the forms that `docker build` knows. */
  readonly url: string;
  /** Archives are unpacked, with the owners that they name. */
  readonly unpacks?: boolean;
  /** Name for the file of an address; absent: the last part of its path. */
  readonly fileName?: string;
  /** The content is a file also where the address looks like that of a repository. The classic ADD takes it so. */
  readonly isFile?: boolean;
  /** A digest for an address, a commit or its beginning for a repository; empty means that any content will do. */
  readonly checksum: string;
  /** undefined: as the URL says, else no. */
  readonly keepGitDir: boolean | undefined;
  /** Gets what git prints. */
  readonly output?: (stream: 1 | 2, bytes: Buffer) => void;
  /** Gets the bytes of an address. The total is undefined when the server does not tell it. */
  readonly progress?: (current: number, total: number | undefined) => void;
}

/** Fetched files, in a directory that nothing else changes. */
export interface LoadedSource extends ContextTree {
  /** Tells the content apart from any other: for the key of a step. */
  readonly key: string;
  /** Names the fetched file, or the commit: hex digits by the name of the algorithm. */
  readonly digest: Readonly<Record<string, string>>;
  readonly kind: 'file' | 'archive' | 'repository';
  /** A file of the directory as a source of COPY, such as `/name`; `/` for a tree. */
  readonly path: string;
  /** Type of the content as its server declares it; empty for a repository. */
  readonly contentType: string;
}

export interface BuildSources {
  /** @throws EngineError with the texts of dockerd; the signal's reason when it is aborted. */
  load(order: RemoteOrder, signal: AbortSignal): Promise<LoadedSource>;
}
