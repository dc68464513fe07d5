/** The firewall backend that the tests of a process are about: files for nftables run the same tests once more. */
const VARIABLE = 'ENGINE_TEST_FIREWALL';

export function testedBackend(): 'iptables' | 'nftables' {
  return process.env[VARIABLE] === 'nftables' ? 'nftables' : 'iptables';
}

/** Has the tests that are imported next run on nftables. */
export function testNftables(): void {
  process.env[VARIABLE] = 'nftables';
}
