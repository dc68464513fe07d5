/** The facts about host and configuration that are known before anything is started. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { type HostInfo, readHostInfo } from '../actors/engine/host.js';
import { Replies } from '../actors/kit/replies.js';
import type { LiveConfig } from '../config/live-config.js';
import type { KeptSockets } from '../ports/kept-sockets.js';
import type { Logger } from '../ports/logger.js';
import { useProxies } from '../registry/proxy.js';
import { AppArmor } from '../runtime/apparmor/apparmor.js';
import { parentCgroup } from '../runtime/cgroup-path.js';
import { shareRealtime } from '../runtime/cpu-realtime.js';
import { type HostFacts, readHostFacts } from '../runtime/host-facts.js';
import { readPolicy } from '../runtime/selinux/policy.js';
import { SeLinux } from '../runtime/selinux/selinux.js';
import { hasSeLinuxPolicy } from '../sys/security/selinux.js';
import { invalid } from '../errors/engine-error.js';
import { readRecord, writeRecord } from '../storage/record-store.js';
import { makeTemporaryPlaces, type TemporaryPlaces } from '../sys/files/temporary-directory.js';
import type { Roots } from './roots.js';
import { type Settings, systemSettings } from './settings.js';

/** Every part of the daemon is made from this. */
export interface Base extends Roots {
  readonly live: LiveConfig;
  readonly facts: HostFacts;
  /** Undefined on hosts where containers are not confined by it. */
  readonly appArmor: AppArmor | undefined;
  /** Undefined when containers have no SELinux labels. */
  readonly seLinux: SeLinux | undefined;
  readonly host: HostInfo;
  readonly settings: Settings;
  readonly log: Logger;
  readonly replies: Replies;
  readonly temporary: TemporaryPlaces;
  readonly keptSockets: KeptSockets;
}

/** Finds out these facts. @throws EngineError for what this host or this daemon cannot do. */
export async function makeBase(live: LiveConfig, roots: Roots, keptSockets: KeptSockets, log: Logger): Promise<Base> {
  const { dataRoot } = roots;
  const config = live.fixed;
  useProxies({ httpProxy: config.httpProxy, httpsProxy: config.httpsProxy, noProxy: config.noProxy });
  const [facts, host] = await Promise.all([readHostFacts(config), readHostInfo()]);
  const id = await engineId(join(dataRoot, 'engine-id.json'));
  const appArmor = facts.apparmor ? await openAppArmor(roots, log) : undefined;
  const seLinux = config.selinuxEnabled ? await openSeLinux() : undefined;
  const settings = await systemSettings(() => live.whole, roots, { facts, appArmor, seLinux }, id);
  if (config.cpuRtPeriodMicroseconds > 0 || config.cpuRtRuntimeMicroseconds > 0) {
    const { version, own: ownCgroup } = facts.cgroup;
    const parent = parentCgroup({ driver: settings.cgroupDriver, parent: config.cgroupParent, version, ownCgroup });
    await shareRealtime(parent, config);
  }
  const temporary = await makeTemporaryPlaces(dataRoot, config.tmpDir, id);
  const replies = new Replies();
  return { ...roots, live, facts, appArmor, seLinux, host, settings, log, replies, temporary, keptSockets };
}

/** Its mark lies in the exec-root, which a reboot empties as it does the kernel's list of profiles. */
function openAppArmor({ execRoot }: Roots, log: Logger): Promise<AppArmor | undefined> {
  const path = join(execRoot, 'apparmor.json');
  return AppArmor.open({ read: () => readRecord(path), write: (text) => writeRecord(path, text) }, log);
}

/** Without SELinux on the host the option has no effect, which a notice says. */
async function openSeLinux(): Promise<SeLinux | undefined> {
  if (!hasSeLinuxPolicy()) return undefined;
  const policy = await readPolicy();
  if (!policy) throw invalid('selinux-enabled: the SELinux policy of this host has no contexts for containers');
  return new SeLinux(policy);
}

/** Returns the identity of the daemon, which is made once and kept with its data. */
async function engineId(path: string): Promise<string> {
  const stored = await readRecord(path);
  if (typeof stored === 'string') return stored;
  const id = randomUUID();
  await writeRecord(path, id);
  return id;
}
