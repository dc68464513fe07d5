/**
 * `engined check` tells whether this machine has the programs that the daemon would need with this configuration.
 * Options that this host cannot fulfil were refused before, as at a start.
 */
import requirements from '../packaging/requirements.json' with { type: 'json' };
import type { Config } from './config/config.js';
import { chosenBackend } from './network/firewall-backends.js';
import { isOnPath } from './sys/process/on-path.js';

type Requirement = (typeof requirements)[number];

/** Any of these programs can be the init of `docker run --init`. */
const INITS = ['docker-init', 'tini-static', 'tini'];

/**
 * Prints each missing program on a line. Returns the exit code, which is 1 when the daemon would not start or not run
 * containers.
 */
export function runCheck(config: Config, print: (line: string) => void): number {
  const missing = requirements.filter((requirement) => isMissing(requirement, config));
  const isNeeded = ({ need }: Requirement): boolean => need !== 'optional' && need !== 'init';
  for (const requirement of missing) {
    const { program, use } = requirement;
    const packages = requirement.package.replace(' | ', ' or ');
    const state = isNeeded(requirement) ? 'missing' : 'missing, optional';
    print(`${state}: ${program} (${use}); Debian package ${packages}`);
  }
  if (missing.some(isNeeded)) return 1;
  print('this machine has what the daemon needs');
  return 0;
}

/** Tells whether a program is missing that this configuration would use. */
function isMissing({ program, need }: Requirement, config: Config): boolean {
  if (need === 'supervisor' && config.supervisor !== '') return false;
  if (need === 'iptables' || need === 'nftables') {
    if (!config.iptables && !config.ip6tables) return false;
    if (need !== chosenBackend(config.firewallBackend)) return false;
  }
  if (need === 'init') return config.initPath === '' && !INITS.some(isOnPath);
  return !isOnPath(program);
}
