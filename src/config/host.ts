/**
 * The facts of the host that decide what an option can mean. They are read synchronously, because `--validate` and each
 * reload need them too.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { checkOwnOptions, driverCandidates, nearestDirectory } from '../storage/drivers/selection.js';
import { readTlsCredentials, type TlsFiles } from '../sys/net/tls-credentials.js';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';
import { findGroupId, groupId } from '../sys/users/group.js';
import { isInUserNamespace } from '../sys/users/user-namespace.js';

export interface Host {
  /** The host was booted with systemd. */
  readonly systemd: boolean;
  readonly cgroupVersion: 1 | 2;
  /** The kernel shares real time among control groups. */
  readonly cpuRealtime: boolean;
  /** The user ids of this process are those of the machine: no launcher made a user namespace for it. */
  readonly isInitialUserNamespace: boolean;
  /** systemd runs for the user of this process, too, and can be asked over the user's bus. */
  readonly userManager: boolean;
  readonly lookUp: HostLookUps;
}

/** Looks up what options name and the host may lack. Each throws an EngineError with the reason. */
export interface HostLookUps {
  group(name: string): void;
  /** Does the same as `group`, in the background. */
  groupLater(name: string): Promise<unknown>;
  /** Reads the files of TLS. The error's `details` name the option of a file that is wrong. */
  tlsFiles(files: TlsFiles): void;
  /** The file system of the data root has to be one of the driver; several drivers with data need a name. */
  storageDriver(driver: string, dataRoot: string): void;
  storageOpts(driver: string, dataRoot: string, storageOpts: readonly string[]): void;
}

/** Reads the facts. @throws Error when /proc is not mounted. */
export function readHost(): Host {
  const { controllers } = parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8'));
  const cpu = controllers.get('cpu');
  return {
    // sd_booted(3) looks for the same directory.
    systemd: statSync('/run/systemd/system', { throwIfNoEntry: false })?.isDirectory() ?? false,
    cgroupVersion: controllers.size === 0 ? 2 : 1,
    cpuRealtime: cpu !== undefined && existsSync(join(cpu, 'cpu.rt_runtime_us')),
    isInitialUserNamespace: !isInUserNamespace(),
    userManager: existsSync(join(process.env['XDG_RUNTIME_DIR'] || '/nonexistent', 'bus')),
    lookUp: {
      group: groupId,
      groupLater: findGroupId,
      tlsFiles: readTlsCredentials,
      storageDriver: (driver, dataRoot) => checkDriver(driver, dataRoot, []),
      storageOpts: checkDriver,
    },
  };
}

/** The host as programs see it that look at the data of all storage drivers, or choose one by themselves. */
export function hostWithoutDriver(): Host {
  const host = readHost();
  return { ...host, lookUp: { ...host.lookUp, storageDriver: () => undefined, storageOpts: () => undefined } };
}

function checkDriver(name: string, dataRoot: string, storageOpts: readonly string[]): void {
  const [driver] = driverCandidates(name, dataRoot);
  if (!driver) return;
  checkOwnOptions(driver, storageOpts);
  driver.check?.(nearestDirectory(join(dataRoot, driver.name)), storageOpts);
}
