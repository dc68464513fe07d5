/**
 * Notes of containers that are paused for a commit, one file for each commit. They survive a kill of the daemon, whose
 * successor resumes these containers, and need not survive the machine.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export class CommitNotes {
  constructor(private readonly dir: string) {}

  /** Notes that a container is about to be paused; returns what ends the note. */
  begin(id: string): () => void {
    mkdirSync(this.dir, { recursive: true, mode: 0o700 });
    const note = join(this.dir, `${id}.${randomBytes(6).toString('hex')}`);
    writeFileSync(note, '');
    return () => rmSync(note, { force: true });
  }

  /** Calls `resume` with the containers that an earlier daemon has noted, and then ends its notes. */
  async settle(resume: (id: string) => Promise<void>): Promise<void> {
    for (const name of this.#names()) {
      await resume(name.split('.')[0] ?? '');
      rmSync(join(this.dir, name), { force: true });
    }
  }

  #names(): string[] {
    try {
      return readdirSync(this.dir);
    } catch {
      return []; // Nothing was ever committed.
    }
  }
}
