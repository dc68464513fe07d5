/**
 * Keeps the exits that shims have reported while there was no containerd: one file for each process, so that a daemon
 * that is killed before containerd is back leaves them to the next one. Nobody else could tell it, because containerd
 * deletes at its start the tasks whose process has ended meanwhile. The files need not survive the machine, as no shim
 * does: they are replaced as a whole, and not synced. An exit is written at once, although that holds up the main
 * thread for some tens of microseconds: turns on the thread pool would give a kill of the daemon time to lose it.
 */
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isTemporary, temporaryPath } from '../../sys/files/durable-file.js';
import type { ProcessRef } from './exit-watch.js';
import { ProcessSchema, Status, type Process } from '../proto/gen/task_types_pb.js';

export class HeardExits {
  readonly #dir: string;
  /** By task, then by exec ID: '' for init. */
  readonly #tasks = new Map<string, Map<string, Process>>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Reads what an earlier daemon has left. A file that tells of no exit, as after a crash of the machine, is removed.
   * @returns the names of such files.
   */
  async load(): Promise<string[]> {
    const names = await readdir(this.#dir).catch(() => []);
    const damaged: string[] = [];
    for (const name of names) {
      const path = join(this.#dir, name);
      const process = isTemporary(name) ? undefined : await readExit(path);
      if (process !== undefined) {
        this.#put(refOf(name), process);
        continue;
      }
      if (!isTemporary(name)) damaged.push(name);
      await rm(path, { recursive: true, force: true });
    }
    return damaged;
  }

  /** Adds an exit, which now survives the daemon. @throws the errno error of the file system. */
  add(ref: ProcessRef, process: Process): void {
    this.#put(ref, process);
    const path = join(this.#dir, nameOf(ref));
    const temporary = temporaryPath(path);
    mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    writeFileSync(temporary, toBinary(ProcessSchema, process));
    renameSync(temporary, path);
  }

  /** Returns the process if its exit was heard. */
  get({ id, execId }: ProcessRef): Process | undefined {
    return this.#tasks.get(id)?.get(execId);
  }

  /** Returns the init processes whose exit was heard. */
  tasks(): Process[] {
    return [...this.#tasks.values()].map((processes) => processes.get('')).filter((init) => init !== undefined);
  }

  /**
   * Forgets a task that was deleted, or whose name a new task will have; nearly never there is something to forget.
   * @throws the errno error of the file system.
   */
  forget(id: string): void {
    const processes = this.#tasks.get(id);
    if (processes === undefined) return;
    this.#tasks.delete(id);
    for (const execId of processes.keys()) rmSync(join(this.#dir, nameOf({ id, execId })), { force: true });
  }

  #put({ id, execId }: ProcessRef, process: Process): void {
    const processes = this.#tasks.get(id) ?? new Map<string, Process>();
    this.#tasks.set(id, processes.set(execId, process));
  }
}

/** Undefined for a file that tells of no exit: an empty one is a message, too, of a process that never ran. */
async function readExit(path: string): Promise<Process | undefined> {
  try {
    const process = fromBinary(ProcessSchema, await readFile(path));
    return process.status === Status.STOPPED ? process : undefined;
  } catch {
    return undefined;
  }
}

/** IDs are names of directories to containerd, too, and have no comma. */
function nameOf({ id, execId }: ProcessRef): string {
  return `${id},${execId}`;
}

function refOf(name: string): ProcessRef {
  const [id = '', execId = ''] = name.split(',');
  return { id, execId };
}
