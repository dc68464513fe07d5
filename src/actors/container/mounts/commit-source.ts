/** Containers as the source of commits: held still while their changes are read. */
import { conflict, isEngineError } from '../../../errors/engine-error.js';
import type { ContainerConfig } from '../../../ports/container.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDirectory } from '../directory.js';
import type { CommitNotes } from './commit-notes.js';

export interface StillContainer {
  readonly id: string;
  readonly config: ContainerConfig;
  readonly image: string;
  /** Digest of the manifest of the image's platform, where it had one. */
  readonly manifest: string | undefined;
}

export class CommitSource {
  constructor(
    private readonly containers: ContainerDirectory,
    private readonly emit: (
      action: string,
      record: ContainerRecord,
      attributes: Readonly<Record<string, string>>,
    ) => void,
    /** Without control groups nothing can be paused: then the container goes on. */
    private readonly canPause: boolean,
    private readonly notes: CommitNotes,
  ) {}

  /**
   * Calls `use` while the container is paused, if it runs, `pause` says so and it can be.
   * @throws EngineError not-found, conflict.
   */
  async withStill<T>(reference: string, pause: boolean, use: (source: StillContainer) => Promise<T>): Promise<T> {
    const { id, config, image, imageManifest, state } = this.containers.find(reference);
    if (state.status === 'dead' || state.status === 'removing')
      throw conflict(`You cannot commit container ${id} which is being removed`);
    const source = { id, config, image, manifest: imageManifest?.digest };
    if (!pause || !this.canPause || state.status !== 'running') return use(source);
    const endNote = this.notes.begin(id);
    try {
      await this.containers.pause(id);
    } catch (error) {
      endNote();
      // The container has ended meanwhile, or somebody else has paused it: either way nothing moves.
      if (isEngineError(error, 'conflict') && this.containers.find(id).state.status !== 'running') return use(source);
      throw error;
    }
    try {
      return await use(source);
    } finally {
      // Somebody else may have ended or resumed the container meanwhile; then there is nothing to resume.
      await this.containers.unpause(id).catch(() => undefined);
      endNote();
    }
  }

  committed(reference: string, attributes: Readonly<Record<string, string>>): void {
    const record = this.containers.get(reference) ?? this.containers.find(reference);
    this.emit('commit', record, attributes);
  }
}
