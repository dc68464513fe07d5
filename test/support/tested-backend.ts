/** The firewall backend that the tests of a process are about: files for nftables run the same tests once more. */
import { execFileSync } from 'node:child_process';

const VARIABLE = 'ENGINE_TEST_FIREWALL';

export function testedBackend(): 'iptables' | 'nftables' {
  return process.env[VARIABLE] === 'nftables' ? 'nftables' : 'iptables';
}

/** All rules of the packet filter, as the program of the tested backend prints them. */
export function testedRules(): string {
  const [program, args] =
    testedBackend() === 'iptables' ? ['iptables-save', []] : (['nft', ['list', 'ruleset']] as const);
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
}

/** Has the tests that are imported next run on nftables. */
export function testNftables(): void {
  process.env[VARIABLE] = 'nftables';
}
