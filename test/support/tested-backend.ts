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

/**
 * Has an operator refuse what comes from an IPv4 address to a bridge, as the documents say. Returns what lifts it.
 */
export function operatorDrops(bridge: string, source: string): () => void {
  const run = (line: string, input = ''): void => {
    const [program = '', ...args] = line.split(' ');
    execFileSync(program, args, { input, stdio: ['pipe', 'ignore', 'inherit'] });
  };
  if (testedBackend() === 'iptables') {
    const rule = `ENGINE-USER -o ${bridge} -s ${source} -j DROP`;
    run(`iptables -w -A ${rule}`);
    return () => run(`iptables -w -D ${rule}`);
  }
  const hook = 'type filter hook forward priority -10; policy accept;';
  const rule = `oifname "${bridge}" ip saddr ${source} drop`;
  run('nft -f -', `table inet operator {\n chain forward {\n ${hook}\n ${rule}\n }\n}\n`);
  return () => run('nft delete table inet operator');
}

/** Has the tests that are imported next run on nftables. */
export function testNftables(): void {
  process.env[VARIABLE] = 'nftables';
}
