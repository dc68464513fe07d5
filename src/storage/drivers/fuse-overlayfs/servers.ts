/**
 * The processes that serve mounts of fuse-overlayfs: one for each mount. They outlive the daemon, and the next one
 * takes them over. One that somebody killed leaves a mount on which every call fails (ENOTCONN): it is told of at
 * once, and the next start of the container mounts afresh, because what the container wrote is in plain files.
 */
import { lstat, statfs } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { internal } from '../../../errors/engine-error.js';
import type { Logger } from '../../../ports/logger.js';
import { detachMount } from '../../../sys/mount/mount.js';
import { type BackgroundProcess, findInBackground, startInBackground } from '../../../sys/process/background.js';

export const PROGRAM = 'fuse-overlayfs';

/** A mount appears after a few milliseconds, and nothing tells of it. */
const POLL_MS = 1;
/** After its last use, the kernel writes what it holds back, and the process ends by itself. */
const END_MS = 60_000;

export class FuseServers {
  /** By mount point. */
  readonly #processes = new Map<string, BackgroundProcess>();

  constructor(private readonly log: Logger) {}

  /**
   * Mounts with these options at an empty directory, and resolves when the mount serves.
   * @throws EngineError internal with the words of the program.
   */
  async start(options: string, at: string): Promise<void> {
    const before = await lstat(at);
    const process = await startInBackground(PROGRAM, ['-f', '-o', options, at]);
    // The first call waits until the process answers.
    while (!process.hasEnded() && [before.dev, undefined].includes(await deviceOf(at))) await sleep(POLL_MS);
    if (process.hasEnded()) {
      await detachMount(at);
      throw internal(`${PROGRAM} cannot mount the root file system: ${process.complaint() || 'it ended at once'}`);
    }
    this.#watch(at, process);
  }

  /**
   * Finds the processes of an earlier daemon whose mount points are among these. Returns the ones that serve. Those
   * whose process is gone are unmounted, and processes that serve nothing any more below `directory` are ended.
   */
  async adopt(mountPoints: readonly string[], directory: string): Promise<Set<string>> {
    const processes = findInBackground(PROGRAM);
    const serving = new Set<string>();
    for (const at of mountPoints) {
      const process = processes.get(at);
      if (process !== undefined && (await isServed(at))) {
        this.#watch(at, process);
        serving.add(at);
        continue;
      }
      await detachMount(at);
      this.log.warn({ mountPoint: at }, `${PROGRAM} of a container has ended: it is mounted afresh at its next start`);
    }
    for (const [at, process] of processes) {
      if (serving.has(at) || !at.startsWith(`${directory}/`)) continue;
      process.kill();
      await process.ended;
    }
    return serving;
  }

  /** Unmounts, and resolves when the process is gone. Idempotent. */
  async stop(at: string): Promise<void> {
    const process = this.#processes.get(at);
    this.#processes.delete(at);
    await detachMount(at);
    if (process === undefined) return;
    const giveUp = new AbortController();
    const late = sleep(END_MS, 'late', { signal: giveUp.signal }).catch(() => undefined);
    const outcome = await Promise.race([process.ended, late]);
    giveUp.abort();
    if (outcome !== 'late') return;
    // Somebody else's mount namespace has a copy of the mount, of which nobody knows how long it stays.
    this.log.warn({ mountPoint: at, pid: process.pid }, `${PROGRAM} is still in use after its unmount: it is ended`);
    process.kill();
    await process.ended;
  }

  #watch(at: string, process: BackgroundProcess): void {
    this.#processes.set(at, process);
    void process.ended.then(async () => {
      if (this.#processes.get(at) !== process) return;
      this.#processes.delete(at);
      if (await isServed(at)) return;
      this.log.warn(
        { mountPoint: at, pid: process.pid },
        `${PROGRAM} of a container was ended: its files cannot be reached until it is stopped and started again`,
      );
    });
  }
}

/** Returns undefined when the mount does not answer. */
async function deviceOf(at: string): Promise<number | undefined> {
  return lstat(at).then(
    ({ dev }) => dev,
    () => undefined,
  );
}

/** A mount whose process has ended answers only what the kernel remembers, such as the attributes of its root. */
async function isServed(at: string): Promise<boolean> {
  return statfs(at).then(
    () => true,
    () => false,
  );
}
