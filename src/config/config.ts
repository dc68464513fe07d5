/** The resolved configuration that the rest of the program reads. Its members are the options of the table. */
import type { Ulimit } from '../ports/container.js';
import type { CgroupDriver } from './cgroup-driver.js';
import type { OptionName, OPTIONS, Values } from './options.js';

type ReloadableName = {
  [Name in OptionName]: (typeof OPTIONS)[Name] extends { readonly reloadable: true } ? Name : never;
}[OptionName];

/** These values may change by a reload: read them anew at each use, and keep no copy. */
export type ReloadableConfig = Pick<Values, ReloadableName>;

/** For these options the configuration has other values than the table. */
type Resolved = 'certPath' | 'defaultCgroupnsMode' | 'defaultUlimits';

/**
 * These values stay as they were at the start and may be kept. They are deeply frozen. Without a value and a default,
 * strings are '' and lists are empty.
 */
export interface FixedConfig extends Omit<Values, ReloadableName | Resolved> {
  /** True when the operator named the group: then it must exist. */
  readonly groupNamed: boolean;
  /** True when the operator said whether TLS is used or verified, even if only to say no. */
  readonly tlsNamed: boolean;
  /** The driver in effect, also where the host decided it. */
  readonly cgroupDriver: CgroupDriver;
  /** Directory with one directory for each registry, for its certificates. */
  readonly certsDir: string;
  /** '': the host decides. */
  readonly defaultCgroupnsMode: Values['defaultCgroupnsMode'] | '';
  readonly defaultUlimits: readonly Ulimit[];
}

/** Both parts of the configuration, read at the same moment. */
export type Config = FixedConfig & ReloadableConfig;
