/** Writes the firewall's rules by the commands of iptables. */
import { inTurns } from '../text/turns.js';
import type { FirewallBackend, InheritedRule } from './firewall-backend.js';
import type { Ruleset } from './firewall-rules.js';
import { removalScript, restoreScript, type Tables } from './firewall-script.js';
import { enableForwarding } from './forwarding.js';
import { chainsOf, chainsOfTag, dnatChain, jumpsOf, USER_CHAIN, type Chain } from './iptables-rules.js';
import { acceptForwarded, applyScript, isLegacy, readTables } from './iptables.js';
import type { Family } from './subnet.js';

export class IptablesBackend implements FirewallBackend {
  /** The kernel has these rules, as far as the daemon knows. */
  readonly #known = new Map<Family, Tables>();
  /** Families whose policy refused forwarded packets when it was read. */
  readonly #drops = new Set<Family>();
  #isLegacy: boolean | undefined;

  /** `tag`: part of the chains' names that belongs to the daemon. */
  constructor(private readonly tag: string) {}

  async read(family: Family): Promise<void> {
    const { tables, dropsForwarded } = await readTables(family, await this.isLegacy());
    this.#known.set(family, tables);
    if (dropsForwarded) this.#drops.add(family);
    else this.#drops.delete(family);
  }

  policyRemedy(family: Family): string | undefined {
    return this.#drops.has(family) ? acceptForwarded(family) : undefined;
  }

  has(family: Family): boolean {
    return this.#known.get(family)?.get('nat')?.has(dnatChain(this.tag)) === true;
  }

  inherited(): readonly InheritedRule[] {
    return [...this.#known].flatMap(([family, tables]) =>
      (tables.get('nat')?.get(dnatChain(this.tag)) ?? []).map((text) => {
        const [, protocol = '', port = ''] = / -m (\w+) --dport (\d+) /.exec(` ${text}`) ?? [];
        return { family, protocol, hostPort: Number(port), text };
      }),
    );
  }

  async write(family: Family, ruleset: Ruleset, inherited: readonly InheritedRule[]): Promise<boolean> {
    const chains = await this.#chains(family, ruleset, inherited);
    const jumps = jumpsOf(ruleset, family);
    const known = this.#known.get(family) ?? new Map();
    const script = await inTurns(restoreScript(known, chains, jumps, chainsOfTag(this.tag)));
    if (script === '') return false;
    await applyScript(family, script);
    // The kernel has taken all of it, so the wanted rules are the kernel's.
    const tables = new Map<string, Map<string, readonly string[]>>([
      ['filter', new Map([[USER_CHAIN, []]])],
      ['nat', new Map()],
    ]);
    for (const { table, name, rules } of chains) tables.get(table)?.set(name, rules);
    for (const { table, chain, rules } of jumps) tables.get(table)?.set(chain, rules);
    this.#known.set(family, tables);
    return true;
  }

  async remove(family: Family): Promise<void> {
    const tables = this.#known.get(family);
    if (!tables) return;
    await applyScript(family, removalScript(tables, chainsOfTag(this.tag)));
    this.#known.delete(family);
  }

  async isLegacy(): Promise<boolean> {
    return (this.#isLegacy ??= await isLegacy());
  }

  async allowForwarding(family: Family, refuseOthers: boolean): Promise<void> {
    await enableForwarding(
      family,
      refuseOthers ? () => applyScript(family, '*filter\n:FORWARD DROP [0:0]\nCOMMIT\n') : undefined,
    );
  }

  /** Returns the wanted rules, including translations that wait for their containers. */
  async #chains(family: Family, ruleset: Ruleset, inherited: readonly InheritedRule[]): Promise<Chain[]> {
    const chains = await inTurns(chainsOf(ruleset, family));
    if (inherited.length === 0) return chains;
    return chains.map((chain) =>
      chain.name === dnatChain(this.tag)
        ? { ...chain, rules: [...new Set([...inherited.map(({ text }) => text), ...chain.rules])] }
        : chain,
    );
  }
}
