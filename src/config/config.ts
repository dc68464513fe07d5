/** The daemon's configuration, resolved: what the rest of the program reads. Its members are those of the table of options. */
import type { Ulimit } from '../ports/container.js';
import type { CgroupDriver } from './cgroup-driver.js';
import type { OptionName, OPTIONS, Values } from './options.js';

type ReloadableName = {
  [Name in OptionName]: (typeof OPTIONS)[Name] extends { readonly reloadable: true } ? Name : never;
}[OptionName];

/** What a reload may change: to be read anew at each use, so that nobody keeps a stale value. */
export type ReloadableConfig = Pick<Values, ReloadableName>;

/** Options that become something else than their values. */
type Resolved = 'certPath' | 'defaultCgroupnsMode' | 'defaultUlimits';

/**
 * What stays as it was at the start, and may be kept. Frozen, through and through; strings are '' and lists empty where
 * nothing was said and there is no default.
 */
export interface FixedConfig extends Omit<Values, ReloadableName | Resolved> {
  /** True when the operator named the group: then it must exist. */
  readonly groupNamed: boolean;
  /** True when the operator said whether TLS is used or verified, be it that it is not. */
  readonly tlsNamed: boolean;
  /** In effect, be it that the host decided. */
  readonly cgroupDriver: CgroupDriver;
  /** '': the host decides. */
  readonly defaultCgroupnsMode: Values['defaultCgroupnsMode'] | '';
  readonly defaultUlimits: readonly Ulimit[];
}

/** Both, of one moment. */
export type Config = FixedConfig & ReloadableConfig;
