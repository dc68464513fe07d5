/**
 * A build of the table: files, a Dockerfile and options. What dockerd 28.5 makes of each is in recorded.json (buildx)
 * and recorded-classic.json (`POST /build`), written by scripts/record-builds.mjs.
 */

/** The image that has a shell; other builds begin with `scratch`. */
export const BASE = 'test/busybox:1.0';

/** Files of a context have this time, in seconds, unless they say another one. */
export const CONTEXT_TIME = 1_000_000_000;

export interface FileEntry {
  readonly text?: string;
  readonly base64?: string;
  /** Target of a symbolic link. */
  readonly link?: string;
  /** Path of an earlier file of which this is another name. */
  readonly hard?: string;
  readonly mode?: number;
  readonly mtime?: number;
  /** Only contexts that are sent as a tar keep owners. */
  readonly uid?: number;
  readonly gid?: number;
  /** Names begin with `user.`. */
  readonly xattrs?: Readonly<Record<string, string>>;
}

/** By path; a path that ends in `/` is a directory, and a text alone is a file's content. */
export type Files = Readonly<Record<string, string | FileEntry>>;

export interface TableCase {
  /** Unique in the table. */
  readonly name: string;
  readonly dockerfile: string;
  /** Besides the Dockerfile. */
  readonly files?: Files;
  readonly args?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly target?: string;
  readonly platform?: string;
  /** Text of the secret by its ID. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** Files of further contexts by name. */
  readonly contexts?: Readonly<Record<string, Files>>;
  /** Images, and other references that are not files, by the name of a context. */
  readonly references?: Readonly<Record<string, string>>;
  /** Further members of a target of bake. */
  readonly options?: Readonly<Record<string, unknown>>;
  /** The build fails; such a build is run alone, because it would cancel others. */
  readonly fails?: true;
}

/** Makes the text of a Dockerfile that begins with `FROM scratch`. */
export const scratch = (...lines: readonly string[]): string => ['FROM scratch', ...lines, ''].join('\n');

/** Makes the text of a Dockerfile that begins with the image that has a shell. */
export const shell = (...lines: readonly string[]): string => [`FROM ${BASE}`, ...lines, ''].join('\n');

/** Makes the text of a Dockerfile with stages of its own. */
export const stages = (...lines: readonly string[]): string => [...lines, ''].join('\n');
