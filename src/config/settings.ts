/** A loaded configuration, with the origin of each value. */
import type { CommandLine } from './argv.js';
import type { Config } from './config.js';
import type { Host } from './host.js';
import type { Position } from './json-text.js';
import type { OptionName } from './options.js';

export type Source = 'default' | 'environment' | 'file' | 'flag';

/** One effective value and where it came from. */
export interface Setting {
  readonly value: unknown;
  readonly source: Source;
  /** Place of the value in the file. */
  readonly position?: Position;
}

export type Environment = Readonly<Record<string, string | undefined>>;

export interface LoadedConfig {
  readonly config: Config;
  readonly settings: ReadonlyMap<OptionName, Setting>;
  readonly commandLine: CommandLine;
  readonly environment: Environment;
  /** The facts of the host when the configuration was first loaded. */
  readonly host: Host;
  readonly notices: readonly Notice[];
  /** These members of the file are known to have no effect. */
  readonly idleKeys: readonly string[];
}

/** A notice is about a setting that is allowed and that operators should know of. */
export interface Notice {
  readonly key: string;
  readonly message: string;
}

export interface Problem {
  readonly kind: 'unknown' | 'conflict' | 'invalid';
  /** Name as the file, the flag or the environment spells it. */
  readonly key: string;
  readonly message: string;
  readonly position?: Position | undefined;
}
