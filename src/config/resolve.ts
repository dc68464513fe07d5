/** From the values of the options to the typed configuration: what follows from several of them. */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { cgroupDriver } from './cgroup-driver.js';
import type { Config } from './config.js';
import type { Host } from './host.js';
import { DEFAULT_HOST } from './hosts.js';
import type { OptionName, Values } from './options.js';
import type { Environment, Setting } from './settings.js';

/** Frozen, with all that is in it. */
export function resolveConfig(
  values: Values,
  settings: ReadonlyMap<OptionName, Setting>,
  environment: Environment,
  host: Host,
): Config {
  const { certPath, defaultUlimits, hosts, tlsCaCert, tlsCert, tlsKey, ...rest } = values;
  const certificates = certPath || join(environment['HOME'] || homedir(), '.engine');
  return freeze({
    ...rest,
    hosts: hosts.length === 0 ? [DEFAULT_HOST] : hosts,
    groupNamed: settings.get('group')?.source !== 'default',
    // The best default depends on the version of the host's cgroups.
    defaultCgroupnsMode: settings.get('defaultCgroupnsMode')?.source === 'default' ? '' : values.defaultCgroupnsMode,
    tls: values.tls || values.tlsVerify,
    tlsNamed: [settings.get('tls'), settings.get('tlsVerify')].some((setting) => setting?.source !== 'default'),
    tlsCaCert: tlsCaCert || join(certificates, 'ca.pem'),
    tlsCert: tlsCert || join(certificates, 'cert.pem'),
    tlsKey: tlsKey || join(certificates, 'key.pem'),
    // Without rules of its own the daemon cannot masquerade.
    ipMasq: values.ipMasq && values.iptables,
    defaultUlimits: Object.values(defaultUlimits),
    cgroupDriver: cgroupDriver(values.execOpts, host),
  });
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const item of Object.values(value)) freeze(item);
  }
  return value;
}
