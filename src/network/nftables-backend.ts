/** Writes the firewall's rules by nft. */
import { inTurns } from '../text/turns.js';
import { internal } from '../errors/engine-error.js';
import type { FirewallBackend, InheritedRule } from './firewall-backend.js';
import type { Ruleset } from './firewall-rules.js';
import { enableForwarding, isForwarding } from './forwarding.js';
import { nftChains, PORTS_CHAIN, RuleComments, tableName } from './nftables-rules.js';
import { identity, tableRemoval, tableScript, type NftTable } from './nftables-script.js';
import { applyNftScript, readTable } from './nftables.js';
import type { Family } from './subnet.js';

const PUBLISHED = /\b(tcp|udp|sctp) dport (\d+) /;

export class NftablesBackend implements FirewallBackend {
  /** The kernel has these tables, as far as the daemon knows. */
  readonly #known = new Map<Family, NftTable>();
  readonly #comments = { 4: new RuleComments(), 6: new RuleComments() } as const;
  readonly #table: string;

  /** `tag`: part of the table's name that belongs to the daemon. */
  constructor(tag: string) {
    this.#table = tableName(tag);
  }

  async read(family: Family): Promise<void> {
    const table = await readTable(this.#table, family);
    if (table) this.#known.set(family, table);
    else this.#known.delete(family);
  }

  policyRemedy(): undefined {
    return undefined;
  }

  has(family: Family): boolean {
    return this.#known.has(family);
  }

  inherited(): readonly InheritedRule[] {
    return [...this.#known].flatMap(([family, table]) =>
      (table.get(PORTS_CHAIN) ?? []).flatMap((text) => {
        const [, protocol = '', port = ''] = PUBLISHED.exec(text) ?? [];
        return protocol === '' ? [] : [{ family, protocol, hostPort: Number(port), text }];
      }),
    );
  }

  async write(family: Family, ruleset: Ruleset, inherited: readonly InheritedRule[]): Promise<boolean> {
    const own = await inTurns(nftChains(ruleset, family, this.#comments[family]));
    const chains = own.map((chain) =>
      chain.name === PORTS_CHAIN && inherited.length > 0
        ? { ...chain, rules: distinct([...inherited.map(({ text }) => text), ...chain.rules]) }
        : chain,
    );
    const known = this.#known.get(family) ?? new Map();
    const script = await inTurns(tableScript(this.#table, family, known, chains));
    if (script === '') return false;
    await applyNftScript(script);
    this.#known.set(family, new Map(chains.map(({ name, rules }) => [name, rules])));
    return true;
  }

  async remove(family: Family): Promise<void> {
    if (!this.#known.has(family)) return;
    await applyNftScript(tableRemoval(this.#table, family));
    this.#known.delete(family);
  }

  isLegacy(): Promise<boolean> {
    return Promise.resolve(false);
  }

  /**
   * A table of our own can refuse what others would let pass, but not leave the choice to them, as the policy of
   * `FORWARD` does. So a host that does not forward stays as it is, unless nothing is to be refused.
   */
  async allowForwarding(family: Family, refuseOthers: boolean): Promise<void> {
    if (!refuseOthers) return enableForwarding(family);
    if (await isForwarding(family)) return;
    const key = family === 4 ? 'net.ipv4.ip_forward' : 'net.ipv6.conf.all.forwarding';
    throw internal(
      `IPv${family} forwarding is disabled: with nftables the host has to be set up for it, by the sysctl ${key}=1; ` +
        'or start with --ip-forward=false or --ip-forward-no-drop',
      { code: 'FORWARDING' },
    );
  }
}

function distinct(rules: readonly string[]): string[] {
  return [...new Map(rules.map((rule) => [identity(rule), rule])).values()];
}
