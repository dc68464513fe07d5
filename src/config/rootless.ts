/**
 * The daemon of an ordinary user, which runs in a user namespace that RootlessKit made: where its files are, and what
 * it cannot do. The places are those of the XDG Base Directory Specification.
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { namedCgroupDriver } from './cgroup-driver.js';
import type { Host } from './host.js';
import type { OptionName, Values } from './options.js';
import type { Environment } from './settings.js';

export interface UserDirectories {
  readonly config: string;
  readonly data: string;
  /** '' where no session of the user gave one; nothing else is as private and as short-lived. */
  readonly runtime: string;
}

/** Returns the user's directories. Relative ones do not count, as the specification says. */
export function userDirectories(environment: Environment): UserDirectories {
  const home = environment['HOME'] || homedir();
  const named = (name: string): string | undefined =>
    environment[name]?.startsWith('/') ? environment[name] : undefined;
  return {
    config: named('XDG_CONFIG_HOME') ?? join(home, '.config'),
    data: named('XDG_DATA_HOME') ?? join(home, '.local', 'share'),
    runtime: named('XDG_RUNTIME_DIR') ?? '',
  };
}

/** Returns the defaults that an ordinary user's daemon has instead of those of the table. */
export function rootlessDefaults(environment: Environment): ReadonlyMap<OptionName, unknown> {
  const { config, data, runtime } = userDirectories(environment);
  return new Map<OptionName, unknown>([
    ['configFile', join(config, 'engine', 'daemon.json')],
    ['dataRoot', join(data, 'engine')],
    ['execRoot', join(runtime, 'engine')],
    ['pidfile', join(runtime, 'engine.pid')],
    ['hosts', [`unix://${join(runtime, 'engine.sock')}`]],
    // Root of the namespace is the user, and there is nobody else to share the socket with.
    ['group', '0'],
  ]);
}

type Report = (name: OptionName, message: string) => void;

/** Refuses a namespace without --rootless, --rootless without one, and options that cannot go with it. */
export function checkRootless(values: Values, host: Host, environment: Environment, report: Report): void {
  if (!values.rootless) {
    if (!host.isInitialUserNamespace && environment['ROOTLESSKIT_STATE_DIR'])
      report('rootless', 'rootless: the daemon was started by RootlessKit: give it --rootless');
    return;
  }
  if (host.isInitialUserNamespace) {
    const message =
      'rootless: the daemon must run in a user namespace of its own, which a launcher such as rootlesskit makes';
    return report('rootless', `${message}: start engined-rootless as an ordinary user`);
  }
  if (userDirectories(environment).runtime === '')
    report('rootless', 'rootless: XDG_RUNTIME_DIR is not set: log in as the user, not through su or sudo');
  if (values.usernsRemap !== '')
    report('usernsRemap', 'userns-remap: users of a rootless daemon are those of its namespace already');
  if (values.cpuRtRuntimeMicroseconds !== 0)
    report('cpuRtRuntimeMicroseconds', 'cpu-rt-runtime: a rootless daemon may not share out real time');
  if (values.cpuRtPeriodMicroseconds !== 0)
    report('cpuRtPeriodMicroseconds', 'cpu-rt-period: a rootless daemon may not share out real time');
  if (values.selinuxEnabled) report('selinuxEnabled', 'selinux-enabled: a rootless daemon may not label files');
  if (namedCgroupDriver(values.execOpts) === 'cgroupfs')
    report(
      'execOpts',
      'exec-opt native.cgroupdriver=cgroupfs: a rootless daemon may not make control groups by itself; use systemd',
    );
}
