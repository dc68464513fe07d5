/** Options that can be seen at work in one and the same daemon, and what their tests look at. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { OptionName } from '../../src/config/options.js';
import type { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import type { EnginedOptions } from '../support/engined.js';
import { callJson } from '../support/http.js';

interface Inspection {
  readonly Id: string;
  readonly State: { readonly Pid: number };
}

export class Scene {
  constructor(
    readonly engine: Engine,
    /** The image that the daemon has, by its reference. */
    readonly image: string,
    /** Where the group put its files. */
    readonly dir: string,
    /** Name of the daemon's control group. */
    readonly mark: string,
  ) {}

  docker(...args: readonly string[]): Promise<string> {
    return engineOk(this.engine, args);
  }

  /** Runs a command to its end in a container that is made for it. */
  run(options: readonly string[], ...command: readonly string[]): Promise<string> {
    return this.docker('run', '--rm', ...options, this.image, ...command);
  }

  info<T>(): Promise<T> {
    return callJson<T>(this.engine.socketPath, 'GET', '/info');
  }

  async id(name: string): Promise<string> {
    return (await this.#inspect(name)).Id;
  }

  async pid(name: string): Promise<number> {
    return (await this.#inspect(name)).State.Pid;
  }

  /** A file of the first process of a container, as the host's kernel shows it. */
  async proc(name: string, file: string): Promise<string> {
    return readFileSync(join('/proc', String(await this.pid(name)), file), 'utf8');
  }

  #inspect(name: string): Promise<Inspection> {
    return callJson<Inspection>(this.engine.socketPath, 'GET', `/containers/${name}/json`);
  }
}

/** Name of the container that runs while the rows of a group are tested; all of its settings come from the daemon. */
export const ONE = 'one';

export interface Group {
  readonly title: string;
  /**
   * Returns the options of the daemon: values that no daemon has by itself.
   * @param dir is an empty directory, which is removed with the group.
   */
  setUp(dir: string, cleanup: Cleanup): EnginedOptions | Promise<EnginedOptions>;
  /** By option, what fails when the option is not obeyed. */
  readonly rows: Readonly<Partial<Record<OptionName, (scene: Scene) => Promise<void>>>>;
}
