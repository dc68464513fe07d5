/** Makes the typed configuration from the values of the options, with what follows from several of them. */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { cgroupDriver } from './cgroup-driver.js';
import type { Config } from './config.js';
import type { Host } from './host.js';
import { DEFAULT_HOST } from './hosts.js';
import type { OptionName, Values } from './options.js';
import { userDirectories } from './rootless.js';
import type { TlsFiles } from '../sys/net/tls-credentials.js';
import type { Environment, Setting } from './settings.js';

/** Finds where the certificates of TLS are: where options say, or in the directory of certificates. */
export function certificatePaths(
  { certPath, tlsCaCert, tlsCert, tlsKey }: Values,
  environment: Environment,
): Pick<Values, 'tlsCaCert' | 'tlsCert' | 'tlsKey'> {
  const directory = certPath || join(environment['HOME'] || homedir(), '.engine');
  return {
    tlsCaCert: tlsCaCert || join(directory, 'ca.pem'),
    tlsCert: tlsCert || join(directory, 'cert.pem'),
    tlsKey: tlsKey || join(directory, 'key.pem'),
  };
}

const MIN_VERSIONS = { '1.0': 'TLSv1', '1.1': 'TLSv1.1', '1.2': 'TLSv1.2', '1.3': 'TLSv1.3' } as const;

/** Says which files a TLS listener reads, from paths that are resolved. */
export function tlsFiles(
  config: Pick<Values, 'tlsVerify' | 'tlsCaCert' | 'tlsCert' | 'tlsKey' | 'tlsMinVersion'>,
): TlsFiles {
  return {
    cert: config.tlsCert,
    key: config.tlsKey,
    ca: config.tlsVerify ? config.tlsCaCert : undefined,
    minVersion: MIN_VERSIONS[config.tlsMinVersion],
  };
}

/** Returns the configuration, frozen with all that is in it. */
export function resolveConfig(
  values: Values,
  settings: ReadonlyMap<OptionName, Setting>,
  environment: Environment,
  host: Host,
): Config {
  const { certPath: _, defaultUlimits, hosts, ...rest } = values;
  const driver = cgroupDriver(values, host);
  return freeze({
    ...rest,
    hosts: hosts.length === 0 ? [DEFAULT_HOST] : hosts,
    groupNamed: settings.get('group')?.source !== 'default',
    // The best default depends on the version of the host's cgroups.
    defaultCgroupnsMode: settings.get('defaultCgroupnsMode')?.source === 'default' ? '' : values.defaultCgroupnsMode,
    tls: values.tls || values.tlsVerify,
    tlsNamed: [settings.get('tls'), settings.get('tlsVerify')].some((setting) => setting?.source !== 'default'),
    ...certificatePaths(values, environment),
    // Without rules of its own the daemon cannot masquerade.
    ipMasq: values.ipMasq && values.iptables,
    defaultUlimits: Object.values(defaultUlimits),
    certsDir: join(values.rootless ? userDirectories(environment).config : '/etc', 'engine', 'certs.d'),
    cgroupDriver: driver,
    // The manager of a user has no group outside this one.
    cgroupParent: values.cgroupParent || (values.rootless && driver === 'systemd' ? 'user.slice' : ''),
  });
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const item of Object.values(value)) freeze(item);
  }
  return value;
}
