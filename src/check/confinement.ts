/** The security modules of the kernel, and seccomp: they hold the processes of containers besides namespaces. */
import { readFile } from 'node:fs/promises';
import type { Config } from '../config/config.js';
import { isOnPath } from '../sys/process/on-path.js';
import type { HostFacts } from '../runtime/host-facts.js';
import { type Row, row } from './row.js';

export async function confinementRows(
  facts: HostFacts,
  config: Pick<Config, 'seccompProfile' | 'selinuxEnabled'>,
): Promise<Row[]> {
  const read = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');
  const [modules, enforcing] = await Promise.all([read('/sys/kernel/security/lsm'), read('/sys/fs/selinux/enforce')]);
  const appArmor = appArmorRow(facts);
  const seLinux = seLinuxRow(enforcing, config);
  const isConfined = [appArmor, seLinux].some(({ verdict }) => verdict === 'ok');
  return [
    row(
      'security modules',
      isConfined ? 'ok' : 'warning',
      (modules.trim() || 'none, or /sys/kernel/security is not mounted') +
        (isConfined ? '' : '; neither AppArmor nor SELinux confines containers'),
    ),
    appArmor,
    seLinux,
    seccompRow(facts, config),
  ];
}

function appArmorRow({ apparmor }: HostFacts): Row {
  if (!apparmor) return row('AppArmor', 'note', 'not in effect on this host');
  return isOnPath('apparmor_parser')
    ? row('AppArmor', 'ok', 'containers run under the profile engine-default')
    : row('AppArmor', 'warning', 'apparmor_parser is missing, so containers are not confined; Debian package apparmor');
}

/** @param enforcing the kernel's file: `1`, `0`, or empty where no policy is loaded. */
function seLinuxRow(enforcing: string, { selinuxEnabled }: Pick<Config, 'selinuxEnabled'>): Row {
  switch (enforcing.trim()) {
    case '1':
      return selinuxEnabled
        ? row('SELinux', 'ok', 'enforcing, and containers have labels')
        : row('SELinux', 'note', 'enforcing, but containers have no labels: selinux-enabled is off');
    case '0':
      return row('SELinux', 'note', 'permissive: it refuses nothing');
    default:
      return row('SELinux', 'note', 'not in effect on this host');
  }
}

function seccompRow({ seccomp }: HostFacts, { seccompProfile }: Pick<Config, 'seccompProfile'>): Row {
  if (!seccomp) return row('seccomp', 'warning', 'not in this kernel: containers may use every system call');
  return seccompProfile === 'unconfined'
    ? row('seccomp', 'warning', 'seccomp-profile is unconfined: containers may use every system call')
    : row('seccomp', 'ok', `profile ${seccompProfile}`);
}
