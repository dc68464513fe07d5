/**
 * Refuses settings that a create request may not have, with the Engine API's messages. It does not look at the host.
 */
import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { invalid } from '../errors/engine-error.js';
import { MAX_PORTS } from '../ports/config-limits.js';
import type { ContainerConfig, HealthConfig, HostConfig } from '../ports/container.js';
import { addressFamily } from '../sys/net/ip-address.js';
import { hasMembers, memberNames } from '../text/member-names.js';
import { ownMember } from '../text/own-member.js';
import { normalizeCapabilities } from './capabilities.js';
import type { CgroupDriver } from './cgroup-path.js';
import { parseDeviceRule } from './devices.js';
import type { HostFacts } from './host-facts.js';
import { checkCgroupParent, checkOneLine } from './one-line.js';
import { parseSeccompProfile } from './seccomp.js';
import { parseSecurityOptions } from './security-options.js';
import { mergeTmpfsOptions } from './tmpfs-options.js';
import { checkSysctls } from './validate-sysctls.js';
import { checkUlimit } from './ulimits.js';
import { checkOwnUsers, ownIdCount } from './userns-mode.js';
import { applyHostLimits, type HostLimits } from './validate-resources.js';

export interface ValidationContext {
  readonly cgroupDriver: CgroupDriver;
  /** Containers have a user namespace of their own unless they say otherwise. */
  readonly remapsUsers?: boolean;
  /** Files have the owners on the disk that all containers have on the host. */
  readonly remapsFiles?: boolean;
  /** Each has users of its own unless it says otherwise. */
  readonly givesOwnUsers?: boolean;
}

/**
 * Checks a container's configuration after the daemon's defaults were filled in.
 * @returns the host configuration as this host can apply it, and warnings for the create response.
 * @throws EngineError invalid with the first fault.
 */
export function validateContainer(
  config: ContainerConfig,
  hostConfig: HostConfig,
  facts: HostFacts,
  context: ValidationContext,
): HostLimits {
  checkConfig(config);
  checkRestartPolicy(hostConfig);
  checkPorts(hostConfig);
  checkNetworkMode(hostConfig);
  checkSecurity(hostConfig);
  checkModes(hostConfig);
  const hasOwnUsers = ownIdCount(hostConfig.UsernsMode, context.givesOwnUsers) !== undefined;
  if (hasOwnUsers && context.remapsFiles === true)
    throw invalid(
      `user namespace mode ${hostConfig.UsernsMode} is not possible: the data of userns-remap are kept apart`,
    );
  if (hasOwnUsers || (context.remapsUsers === true && hostConfig.UsernsMode === '')) checkUserns(hostConfig);
  if (hasOwnUsers) checkOwnUsers(hostConfig);
  const limited = applyHostLimits(hostConfig, facts);
  checkOthers(hostConfig, context);
  const warnings = [...limited.warnings];
  if (hostConfig.NetworkMode === 'host' && hasMembers(hostConfig.PortBindings)) {
    warnings.push('Published ports are discarded when using host network mode');
  }
  if (hostConfig.CgroupnsMode === 'private' && !facts.cgroup.namespaces) {
    warnings.push('Your kernel does not support cgroup namespaces.  Cgroup namespace setting discarded.');
  }
  return { hostConfig: limited.hostConfig, warnings };
}

/**
 * Refuses settings of a request that contradict each other, no matter what image and daemon add.
 * @throws EngineError invalid.
 */
export function checkConflicts(
  { Hostname, ExposedPorts }: ContainerConfig,
  { NetworkMode, UTSMode, PortBindings }: HostConfig,
): void {
  const shares = NetworkMode.startsWith('container:');
  if (shares && Hostname !== '') throw invalid('conflicting options: hostname and the network mode');
  if (UTSMode === 'host' && Hostname !== '') throw invalid('conflicting options: hostname and the UTS mode');
  if (shares && hasMembers(PortBindings))
    throw invalid('conflicting options: port publishing and the container type network mode');
  if (shares && hasMembers(ExposedPorts))
    throw invalid('conflicting options: port exposing and the container type network mode');
}

function checkConfig(config: ContainerConfig): void {
  checkOneLine('Hostname', [config.Hostname]);
  checkOneLine('Domainname', [config.Domainname]);
  if (config.WorkingDir !== '' && !isAbsolute(config.WorkingDir)) {
    throw invalid(`the working directory '${config.WorkingDir}' is invalid, it needs to be an absolute path`);
  }
  for (const entry of config.Env ?? []) {
    if (entry === '' || entry.startsWith('=')) throw invalid(`invalid environment variable: ${entry}`);
  }
  if (config.Healthcheck) checkHealth(config.Healthcheck);
}

/** Nanoseconds. */
const MIN_HEALTH_DURATION = 1_000_000;

function checkHealth(health: HealthConfig): void {
  for (const field of ['Interval', 'Timeout', 'StartPeriod', 'StartInterval'] as const) {
    const value = health[field] ?? 0;
    if (value !== 0 && value < MIN_HEALTH_DURATION) throw invalid(`${field} in Healthcheck cannot be less than 1ms`);
  }
  if ((health.Retries ?? 0) < 0) throw invalid('Retries in Healthcheck cannot be negative');
}

/** Checks a restart policy, for create and for update. @throws EngineError invalid. */
export function checkRestartPolicy({
  AutoRemove,
  RestartPolicy: { Name, MaximumRetryCount },
}: Pick<HostConfig, 'AutoRemove' | 'RestartPolicy'>): void {
  if (AutoRemove && Name !== '' && Name !== 'no')
    throw invalid("can't create 'AutoRemove' container with restart policy");
  switch (Name) {
    case 'always':
    case 'unless-stopped':
    case 'no':
    case '':
      if (MaximumRetryCount !== 0) {
        throw invalid(
          `invalid restart policy: maximum retry count can only be used with 'on-failure'` +
            (MaximumRetryCount < 0 ? ' and cannot be negative' : ''),
        );
      }
      return;
    case 'on-failure':
      if (MaximumRetryCount < 0) throw invalid('invalid restart policy: maximum retry count cannot be negative');
      return;
    default:
      throw invalid(
        `invalid restart policy: unknown policy '${String(Name)}'; ` +
          "use one of 'no', 'always', 'on-failure', or 'unless-stopped'",
      );
  }
}

/** Most ports are written like this. There may be thousands, and this takes a tenth of the time of looking at parts. */
const PLAIN_PORT = /^(?:[1-9]\d{0,3}|[1-5]\d{4})(?:\/(?:tcp|udp|sctp))?$/;
const PLAIN_HOST_PORT = /^(?:|\d{1,4}|[1-5]\d{4})$/;

function checkPorts({ PortBindings }: HostConfig): void {
  let count = 0;
  /** Addresses that are right: most ports have the same few. */
  const known = new Set(['']);
  for (const port of memberNames(PortBindings ?? {})) {
    const bindings = ownMember(PortBindings, port);
    if (!PLAIN_PORT.test(port)) checkPort(port);
    count += bindings?.length ?? 0;
    if (count > MAX_PORTS)
      throw invalid(`invalid container configuration: HostConfig.PortBindings has more than ${MAX_PORTS} bindings`);
    for (const { HostIp, HostPort } of bindings ?? []) {
      if (!PLAIN_HOST_PORT.test(HostPort)) checkHostPort(HostPort);
      if (!known.has(HostIp)) checkHostIp(HostIp);
      known.add(HostIp);
    }
  }
}

function checkPort(port: string): void {
  const [number = '', protocol = 'tcp'] = port.split('/');
  if (!isPort(number) || Number(number) === 0 || !['tcp', 'udp', 'sctp'].includes(protocol))
    throw invalid(`invalid port specification: ${JSON.stringify(port === '' || isPort(number) ? port : number)}`);
}

function checkHostPort(HostPort: string): void {
  const range = HostPort.split('/')[0]?.split('-') ?? [];
  const [first = '', last = first] = range;
  if (HostPort !== '' && (range.length > 2 || !isPort(first) || !isPort(last) || Number(last) < Number(first)))
    throw invalid(`invalid port specification: ${JSON.stringify(HostPort)}`);
}

function checkHostIp(HostIp: string): void {
  if (addressFamily(HostIp.replace(/^\[(.*)\]$/, '$1')) === 0) throw invalid(`invalid IP address: ${HostIp}`);
}

function isPort(text: string): boolean {
  return /^\d{1,5}$/.test(text) && Number(text) <= 65_535;
}

function checkNetworkMode(host: HostConfig): void {
  for (const field of ['ExtraHosts', 'Dns', 'DnsSearch', 'DnsOptions', 'Links'] as const)
    checkOneLine(field, host[field]);
  const shares = host.NetworkMode.startsWith('container:');
  const has = (list: readonly unknown[] | null): boolean => (list?.length ?? 0) > 0;
  if (host.NetworkMode === 'container:')
    throw invalid('invalid network mode: invalid container format container:<name|id>');
  if (shares && has(host.Links))
    throw invalid(
      "conflicting options: container type network can't be used with links. This would result in undefined behavior",
    );
  if (host.NetworkMode === 'host' && has(host.Links)) {
    throw invalid(
      "conflicting options: host type networking can't be used with links. This would result in undefined behavior",
    );
  }
  if (shares && has(host.Dns)) throw invalid('conflicting options: dns and the network mode');
  if (shares && has(host.ExtraHosts))
    throw invalid('conflicting options: custom host-to-IP mapping and the network mode');
  const bad = host.Dns?.find((address) => isIP(address) === 0);
  if (bad !== undefined) throw invalid(`bad nameserver address ${bad}: unable to parse IP`);
  if (shares && (host.PublishAllPorts || hasMembers(host.PortBindings))) {
    throw invalid('conflicting options: port publishing and the container type network mode');
  }
  for (const entry of host.ExtraHosts ?? []) {
    const at = entry.search(/[:=]/);
    const [name, address] = [entry.slice(0, at), entry.slice(at + 1)];
    if (at < 1) throw invalid(`bad format for add-host: ${JSON.stringify(entry)}`);
    if (name !== '' && address !== 'host-gateway' && addressFamily(address.replace(/^\[(.*)\]$/, '$1')) === 0)
      throw invalid(`invalid IP address in add-host: ${JSON.stringify(address)}`);
  }
}

function checkSecurity(host: HostConfig): void {
  normalizeCapabilities('CapAdd', host.CapAdd ?? []);
  normalizeCapabilities('CapDrop', host.CapDrop ?? []);
  const { seccomp } = parseSecurityOptions(host.SecurityOpt ?? []);
  if (seccomp !== undefined && seccomp !== 'unconfined' && seccomp !== 'builtin') parseSeccompProfile(seccomp);
  for (const rule of host.DeviceCgroupRules ?? []) parseDeviceRule(rule);
  for (const { CgroupPermissions, PathOnHost } of host.Devices ?? []) {
    if (!/^[rwm]{0,3}$/.test(CgroupPermissions))
      throw invalid(`invalid cgroup permissions of device ${PathOnHost}: ${JSON.stringify(CgroupPermissions)}`);
  }
}

function checkModes(host: HostConfig): void {
  const joins = (mode: string): boolean => /^container:./.test(mode);
  if (!['', 'none', 'private', 'shareable', 'host'].includes(host.IpcMode) && !joins(host.IpcMode))
    throw invalid(`invalid IPC mode: ${host.IpcMode}`);
  if (!['', 'host'].includes(host.PidMode) && !joins(host.PidMode)) throw invalid(`invalid PID mode: ${host.PidMode}`);
  if (!['', 'host'].includes(host.UTSMode)) throw invalid(`invalid UTS mode: ${host.UTSMode}`);
  if (!['', 'private', 'host'].includes(host.CgroupnsMode))
    throw invalid(`invalid cgroup namespace mode: ${host.CgroupnsMode}`);
  if (!['', 'default'].includes(host.Isolation.toLowerCase()))
    throw invalid(`invalid isolation (${host.Isolation}): linux only supports 'default'`);
}

function checkUserns({ Privileged, NetworkMode, PidMode }: HostConfig): void {
  if (Privileged)
    throw invalid(
      'privileged mode is incompatible with user namespaces.  You must run the container in the host ' +
        'namespace when running privileged mode',
    );
  if (NetworkMode === 'host')
    throw invalid("cannot share the host's network namespace when user namespaces are enabled");
  if (PidMode === 'host') throw invalid('cannot share the host PID namespace when user namespaces are enabled');
}

function checkOthers(host: HostConfig, { cgroupDriver }: ValidationContext): void {
  if (Object.hasOwn(host.Annotations ?? {}, ''))
    throw invalid('invalid Annotations: the empty string is not permitted as an annotation key');
  if (host.ShmSize < 0) throw invalid('SHM size can not be less than 0');
  if (host.OomScoreAdj < -1000 || host.OomScoreAdj > 1000)
    throw invalid(`Invalid value ${host.OomScoreAdj}, range for oom score adj is [-1000, 1000]`);
  for (const ulimit of host.Ulimits ?? []) checkUlimit(ulimit);
  for (const options of Object.values(host.Tmpfs ?? {})) mergeTmpfsOptions(options);
  checkSysctls(host);
  checkCgroupParent(host.CgroupParent, cgroupDriver);
}
