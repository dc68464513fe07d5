/** A daemon with remapped users for the tests of a file, and what tests ask of it. */
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { Cleanup } from './cleanup.js';
import { removeContainers } from './container-removal.js';
import { dockerd } from './dockerd.js';
import { engineOk } from './engine-commands.js';
import { Engine, type EngineKind } from './engine.js';
import { engined } from './engined.js';
import { callJson } from './http.js';
import { archiveOf, load, oldArchive } from './image-archives.js';
import { hostGid, hostUid, makeRemapper } from './remapper.js';
import { closeWithShared, isSharing, tidy } from './shared-engine.js';
import { IMAGE, image } from './users-image.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
interface Inspection {
  readonly State: { readonly Pid: number; readonly Health?: { readonly Status: string } };
  readonly GraphDriver: {
    readonly Data: { readonly UpperDir: string; readonly LowerDir: string; readonly MergedDir: string };
  };
  readonly Mounts: readonly { readonly Source: string }[];
}

/** The one of files that run in one process. */
let shared: RemappedEngine | undefined;

/**
 * The daemon whose images and containers are in a data root of the remapped ids, as if from before; to be asked for
 * once, at the top of a test file. Files that run in one process share it, and the last of them may leave it as it
 * likes.
 */
export function remappedApart(): RemappedEngine {
  if (!isSharing()) return new RemappedEngine(true);
  shared ??= new RemappedEngine(true, true);
  shared.takePart();
  return shared;
}

/** To be made once, at the top of a test file. */
export class RemappedEngine {
  engine!: Engine;
  /** Whether the next start of the engine remaps users. */
  isRemapping = true;
  readonly temp = mkdtempSync(join(tmpdir(), 'userns-test-'));
  readonly #cleanup = new Cleanup();
  #isStarted = false;

  /** @param isApart tells that images and containers are in a data root of the remapped ids, as if from before. */
  constructor(
    private readonly isApart = false,
    isShared = false,
  ) {
    if (isShared) return;
    before(() => this.#start());
    after(() => this.#cleanup.run());
  }

  /** Begins it for a file, or takes away what an earlier file has left. */
  takePart(): void {
    before(async () => {
      if (this.#isStarted) return tidy({ engine: this.engine, image: IMAGE });
      this.#isStarted = true;
      closeWithShared(() => this.#cleanup.run());
      return this.#start();
    });
  }

  readonly ok = (...args: string[]): Promise<string> => engineOk(this.engine, args);
  readonly run = (...args: string[]): Promise<string> => this.ok('run', '--rm', ...args);
  readonly inspect = (name: string): Promise<Inspection> =>
    callJson<Inspection>(this.engine.socketPath, 'GET', `/containers/${name}/json`);
  readonly pidOf = async (name: string): Promise<number> => (await this.inspect(name)).State.Pid;

  async #start(): Promise<void> {
    this.#cleanup.add(async () => rmSync(this.temp, { recursive: true, force: true }));
    makeRemapper(this.temp, this.#cleanup);
    // crun refuses hosts that have control groups of both versions: it is not shown those of version 2.
    writeFileSync(
      join(this.temp, 'crun'),
      '#!/bin/sh\n' +
        "exec unshare --mount sh -c 'umount -l /sys/fs/cgroup/unified 2>/dev/null; " +
        'exec crun "$@"\' sh "$@"\n',
      { mode: 0o755 },
    );
    this.engine = await Engine.start(this.#remapping('--add-runtime', `crun=${this.temp}/crun`));
    this.#cleanup.add(() => this.engine.close());
    this.#cleanup.add(() => removeContainers(this.engine));
    await load(this.engine, archiveOf(oldArchive(image, [IMAGE])));
  }

  /** Its directory lets the containers' root pass, which those of `mkdtemp` do not. */
  #remapping(...args: string[]): EngineKind {
    const options = { args: ['--live-restore', ...args] };
    const plain = onDockerd ? dockerd(options) : engined(options);
    return {
      ...plain,
      command: (dir, socketPath) => {
        chmodSync(dir, 0o711);
        if (this.isApart && !onDockerd)
          mkdirSync(join(dir, 'data', `${hostUid(0)}.${hostGid(0)}`), { recursive: true, mode: 0o710 });
        return [...plain.command(dir, socketPath), ...(this.isRemapping ? ['--userns-remap', 'remapper'] : [])];
      },
    };
  }
}

export const owner = (path: string): string => {
  const { uid, gid } = lstatSync(path);
  return `${uid}:${gid}`;
};
export const hostOwner = (uid: number, gid: number): string => `${hostUid(uid)}:${hostGid(gid)}`;
