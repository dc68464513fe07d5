/** Contract of copying in and out of containers: files at paths of a container, which may be running meanwhile. */
import type { Readable } from 'node:stream';
import type { Owner } from './id-maps.js';

/** Bytes that come by themselves, such as those of a client. */
export interface PieceSource {
  /**
   * Calls back with each piece, whose memory is lent for the call, and once at the end; with an error when the source
   * failed before. To be called once. What is no longer wanted is to be ignored.
   */
  read(onPiece: (piece: Uint8Array) => void, onEnd: (failure: Error | undefined) => void): void;
  /** What is on its way already still comes. */
  pause(): void;
  resume(): void;
}

/** The body of a request that nobody has read yet, in a connected socket that does not block. */
export interface SocketBody {
  readonly fd: number;
  /** Bytes; undefined when it comes as chunks of HTTP/1.1. */
  readonly length: number | undefined;
}

/** Lends its socket to whoever reads the body from it, and does not read itself. */
export interface SocketSource {
  /** The caller closes the descriptor. @throws EngineError cancelled when the client is gone. */
  lend(): SocketBody;
}

/** Where an archive comes from. */
export type ArchiveSource = PieceSource | SocketSource;

/** A tar that another thread makes. It is read, or sent to a socket; who does neither destroys it. */
export interface TarOutput {
  readonly tar: Readable;
  /**
   * Writes it to a connected socket as chunks of HTTP/1.1, without the last chunk. The descriptor must stay open until
   * the promise settles, which is soon after `tar` is destroyed. Rejects when the socket or the tar fails.
   */
  sendTo(socketFd: number): Promise<void>;
  /** Resolves when the files are no longer used. */
  readonly ended: Promise<void>;
}

/** The files of a container as it sees them. */
export interface ContainerView {
  /** Where its root file system is mounted on this host, as long as the view is used. */
  readonly rootfs: string;
  /**
   * Parents first. `destination` is absolute, inside the container; `source` (and what `subpath` means in it) is on
   * this host.
   */
  readonly mounts: readonly {
    readonly source: string;
    readonly subpath?: string;
    readonly destination: string;
    readonly readOnly: boolean;
  }[];
  /**
   * For a container that runs: an open `/proc/<pid>` of its init process. The mounts, and the tmpfs at these
   * destinations, are then those that it really has.
   */
  readonly procFd?: number;
  readonly tmpfs: readonly { readonly destination: string; readonly readOnly: boolean }[];
  readonly isRootReadOnly: boolean;
}

export interface PathStat {
  /** Last component of the path that was asked for. */
  readonly name: string;
  readonly sizeBytes: number;
  /** `st_mode`. */
  readonly mode: number;
  readonly mtimeNs: bigint;
  /** For a symbolic link: where it leads in the end, inside the container; else ''. */
  readonly linkTarget: string;
}

export interface WriteOptions {
  /** Refuses a directory in the place of something else, and the reverse. */
  readonly noOverwriteDirNonDir: boolean;
  /** Who owns what is written, in the container; undefined: as the archive says. */
  readonly owner: Owner | undefined;
}

/**
 * Paths are absolute and cleaned, but for a `/` or `/.` at the end, which follow a link and want a directory. Links
 * lead nowhere outside the container. Every method throws EngineError: code ENOENT when there is no such file, ESRCH
 * when the process of a running container has ended.
 */
export interface Archives {
  stat(view: ContainerView, path: string): Promise<PathStat>;
  /**
   * The file, or the directory with all that is in it, as a tar whose names begin with the last component of the path.
   */
  read(view: ContainerView, path: string): Promise<TarOutput & { readonly stat: PathStat }>;
  /**
   * Unpacks a tar (plain or compressed) into a directory. What was unpacked before a failure stays. The source is read
   * when the directory is found.
   * @throws EngineError invalid for a damaged tar or body, a file in the place of the directory, or what is mounted
   *   read-only; cancelled when the client leaves before the end.
   */
  write(view: ContainerView, path: string, options: WriteOptions, source: ArchiveSource): Promise<void>;
  /** All below a host directory that a container may be changing, as `read`. */
  readDirectory(directory: string): TarOutput;
}
