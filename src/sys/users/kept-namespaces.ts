/**
 * User namespaces of this process, each of which is kept for a while after its use: to make one takes the start of a
 * program, and a container has several mounts with the same maps. The kernel frees a namespace with its last
 * descriptor, so nothing is left by a process that is killed.
 */
import type { IdMaps } from '../../ports/id-maps.js';
import { closeFd } from '../files/fd.js';
import { openUserNamespace, rangesText } from './made-namespace.js';

/** At most so many are kept that nobody uses; what a user may have is bounded (user.max_user_namespaces). */
const MAX_IDLE = 16;
/** One that nobody has used for so long is closed. */
const IDLE_MS = 60_000;

interface Kept {
  readonly opening: Promise<number>;
  users: number;
  closing?: NodeJS.Timeout;
}

export interface TakenNamespace {
  /** Is of a namespace without a process, and open until the release. */
  readonly fd: number;
  /** Is called once. */
  readonly release: () => void;
}

export class KeptNamespaces {
  /** By the text of their maps, in the order of their last use. */
  readonly #kept = new Map<string, Kept>();

  constructor(
    private readonly open: (maps: IdMaps) => Promise<number> = openUserNamespace,
    private readonly idleMs = IDLE_MS,
  ) {}

  /** @throws EngineError unavailable when this host gives no user namespaces, or not these ids. */
  async take(maps: IdMaps): Promise<TakenNamespace> {
    const key = `${rangesText(maps.uids)}\n${rangesText(maps.gids)}`;
    const kept = this.#kept.get(key) ?? { opening: this.open(maps), users: 0 };
    clearTimeout(kept.closing);
    kept.users++;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    try {
      const fd = await kept.opening;
      return { fd, release: () => this.#release(key, kept, fd) };
    } catch (error) {
      // The next one tries again.
      if (this.#kept.get(key) === kept) this.#kept.delete(key);
      throw error;
    }
  }

  #release(key: string, kept: Kept, fd: number): void {
    if (--kept.users > 0) return;
    const close = (): void => {
      this.#kept.delete(key);
      closeFd(fd);
    };
    kept.closing = setTimeout(close, this.idleMs).unref();
    this.#boundIdle();
  }

  /** Closes the one that was used the longest time ago, when there is one too many. */
  #boundIdle(): void {
    const idle = [...this.#kept].filter(([, { users }]) => users === 0);
    const [oldest] = idle;
    if (idle.length <= MAX_IDLE || !oldest) return;
    const [key, { opening, closing }] = oldest;
    clearTimeout(closing);
    this.#kept.delete(key);
    void opening.then(closeFd);
  }
}

const ofProcess = new KeptNamespaces();

/** Returns a user namespace that has these maps. @throws EngineError unavailable, as `KeptNamespaces.take`. */
export function takeUserNamespace(maps: IdMaps): Promise<TakenNamespace> {
  return ofProcess.take(maps);
}

/** Calls `use` with the descriptor of such a namespace. @throws EngineError unavailable; what `use` throws. */
export async function withUserNamespace<T>(maps: IdMaps, use: (fd: number) => Promise<T>): Promise<T> {
  const { fd, release } = await takeUserNamespace(maps);
  try {
    return await use(fd);
  } finally {
    release();
  }
}
