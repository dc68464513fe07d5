/** Contract of copying in and out of containers: files at paths of a container, which may be running meanwhile. */
import type { Readable } from 'node:stream';
import type { IdMaps, Owner } from './id-maps.js';

/** A source that sends its bytes by itself, such as a client. */
export interface PieceSource {
  /**
   * Calls back with each piece, whose memory is lent for the call, and once at the end, with an error if the source
   * failed. Call it once. A reader that needs no more pieces ignores them.
   */
  read(onPiece: (piece: Uint8Array) => void, onEnd: (failure: Error | undefined) => void): void;
  /** Asks the source to stop; pieces that are already on their way still come. */
  pause(): void;
  resume(): void;
}

/** The body of a request that nobody has read yet, in a connected socket that does not block. */
export interface SocketBody {
  readonly fd: number;
  /** Number of bytes; undefined when it comes as chunks of HTTP/1.1. */
  readonly length: number | undefined;
}

/** Lends its socket to the reader of the body, and does not read itself. */
export interface SocketSource {
  /** Returns the body. The caller closes the descriptor. @throws EngineError cancelled when the client is gone. */
  lend(): SocketBody;
}

/** The source of an archive. */
export type ArchiveSource = PieceSource | SocketSource;

/** A tar that another thread makes. It must be read, sent to a socket, or destroyed. */
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
  /** The root file system is mounted here on this host as long as the view is used. */
  readonly rootfs: string;
  /**
   * The mounts, parents first. `destination` is an absolute path inside the container; `source` is on
   * this host, and `paths` lead from there to what is mounted, each of them inside what the one before led to.
   */
  readonly mounts: readonly {
    readonly source: string;
    readonly paths?: readonly string[];
    readonly destination: string;
    readonly readOnly: boolean;
    /** It shows its files as those of the users of `usernsFd`. */
    readonly isMapped?: boolean;
  }[];
  /** The users of the container's own, who own its files on this host. Default: the users of all containers. */
  readonly maps?: IdMaps;
  /** Descriptor of a user namespace with these maps, for a container that does not run. */
  readonly usernsFd?: number;
  /**
   * Set for a container that runs: an open `/proc/<pid>` of its init process. The view then shows its real mounts and
   * tmpfs at these destinations.
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
  /** For a symbolic link, the place inside the container that it leads to in the end; else ''. */
  readonly linkTarget: string;
}

export interface WriteOptions {
  /** If true, a directory cannot replace something else, nor the reverse. */
  readonly noOverwriteDirNonDir: boolean;
  /** The owner of the new files, in the container; undefined: as the archive says. */
  readonly owner: Owner | undefined;
  /** The directory gets a file of this name from a source that is no archive. Absent: such a source is refused. */
  readonly plainFile?: string;
}

/** The source was an archive, or became a file. */
export type Written = 'archive' | 'file';

/**
 * Copies files. Paths are absolute and cleaned, but for a `/` or `/.` at the end, which follows a link and wants a
 * directory. Links lead nowhere outside the container. Every method throws EngineError: code ENOENT when there is no
 * such file, ESRCH when the process of a running container has ended.
 */
export interface Archives {
  stat(view: ContainerView, path: string): Promise<PathStat>;
  /**
   * Returns the file, or the directory with all that is in it, as a tar whose names begin with the last component of
   * the path.
   */
  read(view: ContainerView, path: string): Promise<TarOutput & { readonly stat: PathStat }>;
  /**
   * Unpacks a tar (plain or compressed) into a directory. After a failure, what was unpacked before stays. The source
   * is read only when the directory is found.
   * @throws EngineError invalid for a damaged tar or body, for a file instead of the directory, or for a read-only
   * mount; cancelled when the client leaves before the end.
   */
  write(view: ContainerView, path: string, options: WriteOptions, source: ArchiveSource): Promise<Written>;
  /**
   * Reads all below a host directory that a container may be changing, as `read` does; `maps` as in a view.
   * @param mtimeSeconds is the time of all files in the tar; undefined: each has its own.
   */
  readDirectory(directory: string, maps?: IdMaps, mtimeSeconds?: number): TarOutput;
}
