/**
 * Notices about settings that have no effect, or not the intended one. Such a setting is not wrong, so it is not
 * refused, but the operator must hear of it: the start logs it, `GET /engine/config` lists it and docs/configuration.md
 * has a table.
 */
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { hasSeLinuxPolicy } from '../sys/security/selinux.js';
import { STORAGE_DRIVERS } from '../storage/drivers/index.js';
import type { OptionName, Values } from './options.js';
import { OPTION_LIST } from './options.js';
import { shimProgram } from './runtime-entries.js';
import type { Environment, Notice, Setting } from './settings.js';

interface Row {
  readonly name: OptionName;
  /** The condition in words, '' for always; the documents show it. */
  readonly when: string;
  readonly isIdle: (values: Values) => boolean;
  readonly reason: string;
}

const always = (): boolean => true;
const NO_CLUSTER = 'there is no cluster mode; docs/kubernetes.md is about nodes of a cluster';
const noBridge = (name: OptionName): Row => ({
  name,
  when: 'with `bridge` none',
  isIdle: ({ bridge }) => bridge === 'none',
  reason: 'there is no default bridge',
});
const withoutIpv6 = (name: OptionName): Row => ({
  name,
  when: 'without `ipv6`',
  isIdle: ({ bridge, ipv6 }) => !ipv6 && bridge !== 'none',
  reason: 'the default bridge has no IPv6: ipv6 is off',
});
const withoutTls = (name: OptionName): Row => ({
  name,
  when: 'without `tls`',
  isIdle: ({ tls, tlsVerify }) => !tls && !tlsVerify,
  reason: 'TLS is off',
});
const withoutImageGc = (name: OptionName): Row => ({
  name,
  when: 'without `image-gc-high-percent`',
  isIdle: ({ imageGcHighPercent }) => imageGcHighPercent === 0,
  reason: 'images are not removed by themselves: image-gc-high-percent is 0',
});

/** A value that the operator did not choose gets no notice. */
export const IDLE_OPTIONS: readonly Row[] = [
  {
    name: 'features',
    when: '`buildkit`',
    isIdle: ({ features }) => features['buildkit'] === true,
    reason: 'feature buildkit: clients choose how they build',
  },
  {
    name: 'selinuxEnabled',
    when: 'on hosts without SELinux',
    isIdle: ({ selinuxEnabled }) => selinuxEnabled && !hasSeLinuxPolicy(),
    reason: 'this host has no SELinux policy',
  },
  { name: 'userlandProxyPath', when: '', isIdle: always, reason: 'the proxy is part of the daemon' },
  { name: 'networkControlPlaneMtu', when: '', isIdle: always, reason: NO_CLUSTER },
  { name: 'swarmDefaultAdvertiseAddr', when: '', isIdle: always, reason: NO_CLUSTER },
  {
    name: 'disablePigz',
    when: '',
    isIdle: always,
    reason: 'layers are decompressed by the daemon itself, never by pigz',
  },
  ...(['bip6', 'fixedCidrV6', 'defaultGatewayV6'] as const).map(withoutIpv6),
  ...(
    [
      'bip',
      'bip6',
      'fixedCidr',
      'fixedCidrV6',
      'defaultGateway',
      'defaultGatewayV6',
      'icc',
      'ipMasq',
      'ipv6',
      'mtu',
    ] as const
  ).map(noBridge),
  {
    name: 'ipForwardNoDrop',
    when: 'without `ip-forward`',
    isIdle: ({ ipForward }) => !ipForward,
    reason: 'forwarding is not switched on: ip-forward is off',
  },
  {
    name: 'cdiSpecDirs',
    when: 'with the feature `cdi` switched off',
    isIdle: ({ features }) => features['cdi'] === false,
    reason: 'the feature cdi is off',
  },
  ...(['imageGcLowPercent', 'imageGcMinAgeSeconds'] as const).map(withoutImageGc),
  ...(['tlsCaCert', 'tlsCert', 'tlsKey', 'tlsMinVersion'] as const).map(withoutTls),
  {
    name: 'tlsCaCert',
    when: 'without `tlsverify`',
    isIdle: ({ tls, tlsVerify }) => tls && !tlsVerify,
    reason: 'certificates of clients are not verified: tlsverify is off',
  },
  {
    name: 'criSupervisor',
    when: 'with `supervisor`',
    isIdle: ({ supervisor }) => supervisor !== '',
    reason: 'the supervisor is not started by this daemon',
  },
  {
    name: 'rawLogs',
    when: 'with `log-format` json',
    isIdle: ({ logFormat }) => logFormat === 'json',
    reason: 'lines of the format json have full timestamps and no colours anyway',
  },
  ...STORAGE_DRIVERS.flatMap(({ options }) => options).flatMap(({ name, idle }) =>
    idle === undefined
      ? []
      : {
          name: 'storageOpts' as const,
          when: `\`${name}\``,
          isIdle: ({ storageOpts }: Values) => storageOpts.some((option) => option.startsWith(`${name}=`)),
          reason: idle,
        },
  ),
];

/** These members are in files for other daemons; the text tells why they have no effect here. */
export const IDLE_KEYS: ReadonlyMap<string, string> = new Map([
  ['allow-nondistributable-artifacts', 'layers of every kind are pushed'],
  ['deprecated-key-path', 'the daemon has no key of its own'],
]);

/** Returns the notices in the order of the table. @param idleKeys members of the file that are in `IDLE_KEYS`. */
export function noticesOf(
  values: Values,
  settings: ReadonlyMap<OptionName, Setting>,
  environment: Environment,
  idleKeys: readonly string[],
): readonly Notice[] {
  const isGiven = (name: OptionName): boolean => settings.get(name)?.source !== 'default';
  return [
    ...IDLE_OPTIONS.filter(({ name, isIdle }) => isGiven(name) && isIdle(values)).map(({ name, reason }) =>
      withoutEffect(titleOf(name), reason),
    ),
    ...idleKeys.map((key) => withoutEffect(key, IDLE_KEYS.get(key) ?? '')),
    ...runtimeNotices(values, environment['PATH'] ?? ''),
    ...values.cdiSpecDirs.flatMap((dir) =>
      dir === '' || isAbsolute(dir)
        ? []
        : [{ key: 'cdi-spec-dirs', message: `cdi-spec-dirs: ${dir} is relative to where the daemon was started` }],
    ),
  ];
}

function withoutEffect(key: string, reason: string): Notice {
  return { key, message: `${key} has no effect: ${reason}` };
}

export function titleOf(name: OptionName): string {
  return OPTION_LIST.find((option) => option.name === name)?.title ?? name;
}

/**
 * Returns a notice for each runtime whose program is missing. That is no reason to refuse the start, because the
 * program may be installed later.
 */
function runtimeNotices({ runtimes, supervisor }: Values, path: string): Notice[] {
  return Object.entries(runtimes).flatMap(([name, { path: program, runtimeType = '' }]) => {
    // The supervisor looks for the programs; one that somebody else started may look elsewhere.
    if (program === undefined && supervisor !== '') return [];
    const wanted = program ?? shimProgram(runtimeType);
    if (isExecutable(wanted, path)) return [];
    return [{ key: 'runtimes', message: `runtime ${name} cannot be used: there is no program ${wanted}` }];
  });
}

function isExecutable(program: string, path: string): boolean {
  const places = program.includes('/') ? [program] : path.split(delimiter).map((dir) => join(dir, program));
  return places.some((place) => {
    try {
      accessSync(place, constants.X_OK);
      return statSync(place).isFile();
    } catch {
      // The reason does not matter here: the program cannot be run.
      return false;
    }
  });
}
