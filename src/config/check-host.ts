/**
 * Finds options that this host, or this daemon, cannot fulfil. They are refused wherever a configuration is read, not
 * only at a start.
 */
import { snapshotterOf } from '../storage/drivers/selection.js';
import { existsSync, readFileSync } from 'node:fs';
import { type EngineError, isEngineError, messageOf } from '../errors/engine-error.js';
import { missingSocket, namedSocket, validateLogOptions } from '../logs/options/log-options.js';
import { parseSeccompProfile } from '../runtime/seccomp.js';
import { cgroupDriver, namedCgroupDriver } from './cgroup-driver.js';
import type { Host } from './host.js';
import { logDriverProblems } from './log-driver-options.js';
import type { OptionName, Values } from './options.js';
import { certificatePaths, tlsFiles } from './resolve.js';
import type { Environment } from './settings.js';

type Report = (name: OptionName, message: string) => void;
type IsGiven = (name: OptionName) => boolean;

const REALTIME = [
  ['cpuRtRuntimeMicroseconds', 'cpu-rt-runtime'],
  ['cpuRtPeriodMicroseconds', 'cpu-rt-period'],
] as const;

export function checkHost(values: Values, host: Host, report: Report): void {
  const { rootless, execOpts } = values;
  if (namedCgroupDriver(execOpts) === 'systemd' && !host.systemd) {
    report('execOpts', 'exec-opt native.cgroupdriver=systemd: systemd is not running on this host; use cgroupfs');
  } else if (rootless && namedCgroupDriver(execOpts) === 'systemd' && cgroupDriver(values, host) !== 'systemd') {
    report(
      'execOpts',
      'exec-opt native.cgroupdriver=systemd: a rootless daemon needs cgroup version 2 and a systemd of the user, ' +
        'whose bus is in XDG_RUNTIME_DIR',
    );
  }
  const [realtime] = REALTIME.filter(([name]) => values[name] !== 0);
  if (realtime && host.cgroupVersion === 2) report(realtime[0], `${realtime[1]} is not supported with cgroups v2`);
  else if (realtime && !host.cpuRealtime) {
    report(realtime[0], `${realtime[1]}: the kernel does not support the real-time scheduler in control groups`);
  }
}

/** Refuses a default log driver, log options or a seccomp profile with which no container could be created. */
export function checkContainerDefaults(values: Values, report: Report, isGiven: IsGiven): void {
  const { logDriver, logOpts, seccompProfile } = values;
  const named = isGiven('logOpts') ? 'logOpts' : 'logDriver';
  const problems = logDriverProblems(logDriver, logOpts, 'linux');
  for (const message of problems) report(named, message);
  if (problems.length === 0) {
    const refuse = (message: string): void => report(named, `failed to set log opts: ${message}`);
    refuseIfThrown(() => {
      validateLogOptions(logDriver, logOpts);
      const socket = namedSocket(logDriver, logOpts);
      if (socket !== undefined && !existsSync(socket)) throw missingSocket(socket);
    }, refuse);
  }
  if (seccompProfile === 'builtin' || seccompProfile === 'unconfined') return;
  let text: string;
  try {
    text = readFileSync(seccompProfile, 'utf8');
  } catch (error) {
    report('seccompProfile', `opening seccomp profile (${seccompProfile}) failed: ${messageOf(error)}`);
    return;
  }
  const refuse = (message: string): void => report('seccompProfile', `seccomp-profile ${seccompProfile}: ${message}`);
  refuseIfThrown(() => parseSeccompProfile(text), refuse);
}

const TLS_OPTIONS = { tlscert: 'tlsCert', tlskey: 'tlsKey', tlscacert: 'tlsCaCert' } as const;

/** Refuses names of things that the host does not have: a group, usable certificates, quotas of a file system. */
export function checkNamed(
  values: Values,
  { lookUp }: Host,
  environment: Environment,
  report: Report,
  isGiven: IsGiven,
): void {
  const { group, sockets, storageDriver, storageOpts } = values;
  if (isGiven('group'))
    refuseIfThrown(
      () => lookUp.group(group),
      (message) => report('group', message),
    );
  for (const { host, group: named } of sockets.filter((socket) => socket.group !== ''))
    refuseIfThrown(
      () => lookUp.group(named),
      (message) => report('sockets', `sockets: host ${host}: ${message}`),
    );
  // The supervisor says itself what snapshotters it has.
  let canBe = snapshotterOf(values.features, storageDriver) === undefined;
  if (canBe)
    refuseIfThrown(
      () => lookUp.storageDriver(storageDriver, values.dataRoot),
      (message) => {
        canBe = false;
        report('storageDriver', message);
      },
    );
  if (canBe && storageOpts.length > 0)
    refuseIfThrown(
      () => lookUp.storageOpts(storageDriver, values.dataRoot, storageOpts),
      (message) => report('storageOpts', `storage-opts ${storageOpts.join(', ')}: ${message}`),
    );
  if (!values.tls && !values.tlsVerify) return;
  refuseIfThrown(
    () => lookUp.tlsFiles(tlsFiles({ ...values, ...certificatePaths(values, environment) })),
    (message, { option }) => report(TLS_OPTIONS[option as keyof typeof TLS_OPTIONS], message),
  );
}

/** Calls `refuse` when the check throws. @param refuse is called with the words of an error of ours. */
function refuseIfThrown(check: () => void, refuse: (message: string, details: EngineError['details']) => void): void {
  try {
    check();
  } catch (error) {
    if (!isEngineError(error)) throw error;
    refuse(error.message, error.details);
  }
}
