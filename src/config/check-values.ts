/** Checks values against each other, for one platform. It looks at the file system only for files that options name. */
import { existsSync } from 'node:fs';
import { isAbsolute, win32 } from 'node:path';
import { messageOf } from '../errors/engine-error.js';
import { DEFAULT_STORAGE_DRIVER, STORAGE_DRIVERS } from '../storage/drivers/index.js';
import { snapshotterOf } from '../storage/drivers/selection.js';
import { isDefaultUserMissing, readIdMaps } from '../sys/users/remapped-user.js';
import { cgroupDriver } from './cgroup-driver.js';
import { checkContainerDefaults, checkHost, checkNamed } from './check-host.js';
import type { Host } from './host.js';
import { logDriverProblems } from './log-driver-options.js';
import { OPTION_LIST, type OptionName, type Values } from './options.js';
import { bridgeNameProblem } from '../network/bridge-name.js';
import { contains, covers, parseSubnet, subnetAround, toNumber } from '../network/subnet.js';
import { isShim } from './runtime-entries.js';
import { checkRootless } from './rootless.js';
import type { Environment, Problem, Setting } from './settings.js';
import { suggestFeature } from './suggest.js';

type Platform = 'linux' | 'windows';
type Report = (name: OptionName, message: string) => void;

/** Returns everything that is wrong, each with the option that has to be changed. */
export function checkValues(
  values: Values,
  settings: ReadonlyMap<OptionName, Setting>,
  platform: Platform,
  { host, environment }: { readonly host: Host; readonly environment: Environment },
): Problem[] {
  const problems: Problem[] = [];
  const report: Report = (name, message) => {
    const option = OPTION_LIST.find((candidate) => candidate.name === name);
    problems.push({ kind: 'invalid', key: option?.title ?? name, message, position: settings.get(name)?.position });
  };
  const given = (name: OptionName): boolean => settings.get(name)?.source !== 'default';
  checkPlatform(values, settings, platform, report);
  checkPaths(values, given, platform, report);
  checkNetwork(values, report);
  checkRuntimes(values, platform, report);
  checkLabels(values, report);
  checkFeatures(values, platform, report);
  if (platform === 'linux') {
    checkRootless(values, host, environment, report);
    checkHost(values, host, report);
    const misnamed = values.bridge === '' ? undefined : bridgeNameProblem(values.bridge);
    if (misnamed !== undefined) report('bridge', misnamed);
    checkCgroupParent(values, host, report);
    checkContainerDefaults(values, report, given);
    const isSound = (prefix: string): boolean => !problems.some(({ key }) => key.startsWith(prefix));
    const checked = {
      ...values,
      ...(isSound('tls') ? {} : { tls: false, tlsVerify: false }),
      ...(isSound('storage-') ? {} : { storageOpts: [] }),
    };
    checkNamed(checked, host, environment, report, given);
  } else {
    const named = given('logOpts') ? 'logOpts' : 'logDriver';
    for (const message of logDriverProblems(values.logDriver, values.logOpts, platform)) report(named, message);
  }
  if (values.imageGcHighPercent !== 0 && values.imageGcLowPercent >= values.imageGcHighPercent)
    report(
      'imageGcLowPercent',
      `image-gc-low-percent (${values.imageGcLowPercent}) must be below image-gc-high-percent ` +
        `(${values.imageGcHighPercent})`,
    );
  if (values.imageGcMinAgeSeconds < 0) report('imageGcMinAgeSeconds', 'image-gc-min-age cannot be negative');
  if (values.supervisorNamespace === values.supervisorPluginsNamespace)
    report('supervisorNamespace', 'containers namespace and plugins namespace cannot be the same');
  if (values.metricsAddr !== '' && !values.experimental)
    report('metricsAddr', 'metrics-addr is only supported when experimental is enabled');
  return problems;
}

const WINDOWS_RUNTIMES = ['com.engine.hcsshim.v1', 'io.supervisor.runhcs.v1'];

function checkPlatform(
  values: Values,
  settings: ReadonlyMap<OptionName, Setting>,
  platform: Platform,
  report: Report,
): void {
  if (platform === 'windows') {
    for (const option of OPTION_LIST) {
      const source = settings.get(option.name)?.source;
      if (!option.windows && (source === 'file' || source === 'flag'))
        report(option.name, `${option.title} is not supported on Windows`);
    }
    if (values.storageDriver !== '' && values.storageDriver !== 'windowsfilter')
      report('storageDriver', `driver not supported: ${values.storageDriver}`);
    for (const entry of values.storageOpts) {
      if (!entry.startsWith('size='))
        report('storageOpts', `unknown option ${entry.split('=')[0]} of storage driver windowsfilter`);
    }
    return;
  }
  checkStorage(values, report);
}

function checkFeatures({ features }: Values, platform: Platform, report: Report): void {
  for (const name of Object.keys(features)) {
    if (!FEATURES.has(name)) {
      const suggestion = suggestFeature(name, [...FEATURES]);
      report(
        'features',
        `unknown feature ${name}${suggestion === undefined ? '' : `: did you mean ${JSON.stringify(suggestion)}?`}`,
      );
    } else if (platform === 'linux' && name === 'windows-dns-proxy') {
      report('features', 'feature windows-dns-proxy is only available on Windows');
    }
  }
}

/** `buildkit` is in many files of other engines, but it never changed how a daemon works, so it is accepted. */
const FEATURES: ReadonlySet<string> = new Set([
  'allow-browsers',
  'audit',
  'buildkit',
  'cdi',
  'supervisor-snapshotter',
  'windows-dns-proxy',
]);

/** containerd has identifiers of this form. */
const SNAPSHOTTER = /^[A-Za-z0-9][A-Za-z0-9._-]{0,75}$/;

function checkStorage({ features, storageDriver, storageOpts }: Values, report: Report): void {
  const snapshotter = snapshotterOf(features, storageDriver);
  if (snapshotter !== undefined) {
    if (!SNAPSHOTTER.test(snapshotter)) report('storageDriver', `invalid name of a snapshotter: ${snapshotter}`);
    for (const entry of storageOpts) {
      const [option] = entry.split('=', 1);
      report('storageOpts', `storage option ${option} does not belong to the snapshotter ${snapshotter}`);
    }
    return;
  }
  if (storageDriver === 'windowsfilter')
    report('storageDriver', 'storage driver windowsfilter is only available on Windows');
  else if (storageDriver !== '' && !STORAGE_DRIVERS.some(({ name }) => name === storageDriver))
    report('storageDriver', `driver not supported: ${storageDriver}`);
  const driver = storageDriver || DEFAULT_STORAGE_DRIVER;
  const options = STORAGE_DRIVERS.flatMap((row) => row.options);
  for (const entry of storageOpts) {
    const name = entry.slice(0, entry.indexOf('='));
    const value = entry.slice(entry.indexOf('=') + 1);
    const option = options.find((known) => known.name === name);
    if (name === 'size') report('storageOpts', 'storage option size is only available on Windows');
    else if (!option) report('storageOpts', `unknown option ${name} of storage driver ${driver}`);
    // Which driver it will be is known on its host only.
    else if (storageDriver !== '' && !name.startsWith(`${driver}.`))
      report('storageOpts', `storage option ${name} does not belong to storage driver ${driver}`);
    else if (option.value === 'size' && !/^\d+(\.\d+)? ?[kmgtp]?(i?b)?$/i.test(value))
      report('storageOpts', `invalid size '${value}' of storage option ${name}`);
  }
}

function checkPaths(values: Values, given: (name: OptionName) => boolean, platform: Platform, report: Report): void {
  const absolute = (path: string): boolean => (platform === 'windows' ? win32.isAbsolute(path) : isAbsolute(path));
  for (const name of ['dataRoot', 'execRoot', 'pidfile', 'initPath', 'userlandProxyPath', 'tmpDir'] as const) {
    const path = values[name];
    if (path !== '' && given(name) && !absolute(path))
      report(
        name,
        `${OPTION_LIST.find((option) => option.name === name)?.title} must be an absolute path, ` +
          `not ${JSON.stringify(path)}`,
      );
  }
  // Files for a daemon of another platform are on another machine.
  if (platform === 'windows') return;
  for (const { name, mustExist, title } of OPTION_LIST) {
    const path = values[name];
    if (mustExist && typeof path === 'string' && path !== '' && !existsSync(path))
      report(name, `${title}: ${path} does not exist`);
  }
  if (values.supervisor !== '' && !isAbsolute(values.supervisor)) {
    report('supervisor', `supervisor must be the absolute path of a socket, not ${JSON.stringify(values.supervisor)}`);
  }
  checkRemap(values.usernsRemap, report);
  for (const name of ['tlsCaCert', 'tlsCert', 'tlsKey'] as const) {
    const path = values[name];
    if ((values.tls || values.tlsVerify) && path !== '' && !existsSync(path))
      report(name, `${name.toLowerCase()}: ${path} does not exist`);
  }
}

function checkRemap(value: string, report: Report): void {
  try {
    if (value !== '') readIdMaps(value);
  } catch (error) {
    if (!isDefaultUserMissing(error)) report('usernsRemap', messageOf(error));
  }
}

/** The least MTU of IPv6 (RFC 8200, section 5). */
const IPV6_MIN_MTU = 1280;

function checkNetwork(values: Values, report: Report): void {
  if (!values.iptables && !values.icc)
    report(
      'icc',
      'You specified --iptables=false with --icc=false. ICC=false uses iptables to function. ' +
        'Please set --icc or --iptables to true',
    );
  if (values.ipv6 && values.mtu < IPV6_MIN_MTU)
    report('mtu', `invalid mtu: ${values.mtu}: IPv6 needs ${IPV6_MIN_MTU} at least`);
  for (const name of ['bip', 'bip6'] as const) {
    const [address = '', prefix] = values[name].split('/');
    const isNetwork = address !== '' && toNumber(address) === subnetAround(address, Number(prefix)).base;
    if (isNetwork)
      report(name, `invalid ${name}: ${values[name]} is the network's own address; give the bridge one inside it`);
  }
  checkInside(values, 'fixedCidr', values.bip, 'bip', report);
  checkInside(values, 'defaultGateway', values.bip, 'bip', report);
  if (!values.ipv6) return;
  checkInside(values, 'fixedCidrV6', values.bip6, 'bip6', report);
  checkInside(values, 'defaultGatewayV6', values.bip6, 'bip6', report);
}

/** Refuses a value that is neither a part of the bridge's network nor an address in it. */
function checkInside(values: Values, name: keyof typeof PARTS, whole: string, bridge: string, report: Report): void {
  const part = values[name];
  if (part === '' || whole === '') return;
  const network = parseSubnet(whole, bridge);
  const isInside = part.includes('/') ? covers(network, parseSubnet(part, PARTS[name])) : contains(network, part);
  if (!isInside) report(name, `${PARTS[name]} ${part} is not inside the network of ${bridge} ${whole}`);
}

const PARTS = {
  fixedCidr: 'fixed-cidr',
  fixedCidrV6: 'fixed-cidr-v6',
  defaultGateway: 'default-gateway',
  defaultGatewayV6: 'default-gateway-v6',
} as const;

function checkRuntimes({ defaultRuntime, runtimes, execOpts }: Values, platform: Platform, report: Report): void {
  for (const option of execOpts) {
    const [name = '', value = ''] = option.split('=');
    if (name === 'native.cgroupdriver') {
      if (platform === 'windows') report('execOpts', 'exec-opt native.cgroupdriver is only available on Linux');
      else if (value !== 'cgroupfs' && value !== 'systemd')
        report('execOpts', `native.cgroupdriver option ${value} not supported`);
    } else if (name === 'isolation') {
      if (platform === 'linux') report('execOpts', 'exec-opt isolation is only available on Windows');
      else if (value !== 'hyperv' && value !== 'process')
        report('execOpts', `Invalid isolation option ${value}: must be hyperv or process`);
    } else report('execOpts', `unknown exec-opt: ${name}`);
  }
  if (platform === 'windows') {
    if (defaultRuntime !== 'runc' && !WINDOWS_RUNTIMES.includes(defaultRuntime))
      report('defaultRuntime', `invalid default runtime ${defaultRuntime}: must be ${WINDOWS_RUNTIMES.join(' or ')}`);
    return;
  }
  if (WINDOWS_RUNTIMES.includes(defaultRuntime))
    report('defaultRuntime', `default runtime ${defaultRuntime} is only available on Windows`);
  else if (defaultRuntime !== 'runc' && !Object.hasOwn(runtimes, defaultRuntime) && !isShim(defaultRuntime)) {
    report('defaultRuntime', `specified default runtime '${defaultRuntime}' does not exist`);
  }
}

function checkCgroupParent(values: Values, host: Host, report: Report): void {
  const { cgroupParent } = values;
  if (cgroupParent === '' || cgroupDriver(values, host) !== 'systemd' || /^.+\.slice$/.test(cgroupParent)) return;
  report('cgroupParent', 'cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"');
}

function checkLabels({ labels, nodeGenericResources }: Values, report: Report): void {
  const seen = new Map<string, string>();
  for (const label of labels) {
    const name = label.slice(0, label.indexOf('='));
    const value = label.slice(name.length + 1);
    const before = seen.get(name);
    if (before !== undefined && before !== value)
      report('labels', `conflict labels for ${name}=${value} and ${name}=${before}`);
    seen.set(name, value);
  }
  for (const resource of nodeGenericResources) {
    if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]*=.+$/.test(resource))
      report('nodeGenericResources', `invalid node-generic-resource: ${resource}`);
  }
}
