/** Programs that the daemon would run with a configuration: one row for each that is missing, one for all others. */
import requirements from '../../packaging/requirements.json' with { type: 'json' };
import type { Config } from '../config/config.js';
import { chosenBackend } from '../network/firewall-backends.js';
import type { HostFacts } from '../runtime/host-facts.js';
import { STORAGE_DRIVERS } from '../storage/drivers/index.js';
import { isal } from '../sys/ffi/isal.js';
import { isOnPath } from '../sys/process/on-path.js';
import { type Row, row } from './row.js';

type Requirement = (typeof requirements)[number];

/** Any of these programs can be the init of `docker run --init`. */
const INITS = ['docker-init', 'tini-static', 'tini'];
/** Without these the daemon starts and runs containers. */
const SPARE = new Set(['optional', 'init', 'apparmor', 'rootless', 'library']);

export function programRows(config: Config, facts: Pick<HostFacts, 'apparmor'>): Row[] {
  const missing = requirements.filter((requirement) => isMissing(requirement, config, facts));
  const rows = missing.map(({ program, use, need, package: packages }) =>
    row(
      'program',
      SPARE.has(need) ? 'note' : 'failure',
      `missing: ${program} (${use}); Debian package ${packages.replace(' | ', ' or ')}`,
    ),
  );
  return [...rows, row('firewall', 'ok', firewallText(config))].concat(
    missing.length === 0 ? [row('programs', 'ok', 'none is missing')] : [],
  );
}

function firewallText({ iptables, ip6tables, firewallBackend }: Config): string {
  return iptables || ip6tables ? `rules by ${chosenBackend(firewallBackend)}` : 'no rules are written';
}

/** Tells whether a program is missing that this configuration would use. */
function isMissing({ program, need }: Requirement, config: Config, facts: Pick<HostFacts, 'apparmor'>): boolean {
  if (need === 'supervisor' && config.supervisor !== '') return false;
  if (need === 'apparmor' && !facts.apparmor) return false;
  // Users who want such a daemon ask engined-rootless.
  if (need === 'rootless' && !config.rootless) return false;
  if (STORAGE_DRIVERS.some(({ name }) => name === need) && config.storageDriver !== need) return false;
  if (need === 'iptables' || need === 'nftables') {
    if (!config.iptables && !config.ip6tables) return false;
    if (need !== chosenBackend(config.firewallBackend)) return false;
  }
  if (need === 'init') return config.initPath === '' && !INITS.some(isOnPath);
  // There is only one.
  if (need === 'library') return isal() === undefined;
  return !isOnPath(program);
}
