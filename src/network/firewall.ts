/**
 * Keeps the kernel's packet filter as the networks want it. Changes that come together are applied in one batch; what
 * somebody else has flushed is put back.
 */
import type { Logger } from '../ports/logger.js';
import { RulesetWatch } from '../sys/netlink/netfilter.js';
import {
  chainsOf,
  dnatChain,
  jumpsOf,
  USER_CHAIN,
  type BridgeRules,
  type Chain,
  type LinkRule,
  type PortRule,
  type Ruleset,
} from './firewall-rules.js';
import { removalScript, restoreScript, type Tables } from './firewall-script.js';
import { filterBridged } from './forwarding.js';
import { applyScript, isLegacy, readTables } from './iptables.js';
import type { Family } from './subnet.js';

export interface FirewallOptions {
  /** Part of the chains' names: the daemon's own, at most 15 characters. */
  readonly tag: string;
  /** The families to write rules for; with none, nothing is touched. */
  readonly families: readonly Family[];
  readonly userlandProxy: boolean;
  readonly log: Logger;
}

/** How often somebody else's changes are looked for. */
const WATCH_MS = 1000;
/** Ours and theirs at the very same time look like ours: how many looks until the kernel is asked in any case. */
const LOOKS_TO_FULL_CHECK = 30;

interface Change {
  readonly apply: () => void;
  readonly revert: () => void;
  /** The kernel is to be looked at first. */
  readonly isCheck?: boolean;
}

interface Waiting extends Change {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class Firewall {
  readonly #bridges = new Map<string, BridgeRules>();
  readonly #ports = new Set<PortRule>();
  /** By the endpoint that others are open to. */
  readonly #links = new Map<string, readonly LinkRule[]>();
  /** Translations of a run before this one's, whose containers may still be taken over. */
  #inherited: readonly string[] = [];
  /** The kernel has these rules, as far as the daemon knows. */
  readonly #known = new Map<Family, Tables>();
  #bridged: readonly Family[] = [];
  #queue: Waiting[] = [];
  #work: Promise<void> = Promise.resolve();
  #isWorking = false;
  #watch: RulesetWatch | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The kernel's rules as we left them. */
  #fingerprint = '';
  #looks = 0;

  constructor(private readonly options: FirewallOptions) {}

  /** Looks what is there. Ports of an earlier run stay open until they are claimed or `disown` is called. */
  async open(): Promise<void> {
    if (this.options.families.length === 0) return;
    const { families, userlandProxy } = this.options;
    const [legacy, bridged] = await Promise.all([
      isLegacy(),
      userlandProxy ? [] : filterBridged(families),
      this.#read(),
    ]);
    this.#bridged = bridged;
    this.#watch = new RulesetWatch(legacy);
    this.#timer = setInterval(() => this.#look(), WATCH_MS).unref();
    this.#inherited = [...this.#known.values()].flatMap(
      (tables) => tables.get('nat')?.get(dnatChain(this.options.tag)) ?? [],
    );
  }

  /** Closes ports of an earlier run that nobody has claimed. */
  async disown(): Promise<void> {
    if (this.#inherited.length > 0)
      await this.#change({ apply: () => (this.#inherited = []), revert: () => undefined });
  }

  async setBridge(rules: BridgeRules): Promise<void> {
    const before = this.#bridges.get(rules.bridge);
    await this.#change({
      apply: () => this.#bridges.set(rules.bridge, rules),
      revert: () => (before ? this.#bridges.set(rules.bridge, before) : this.#bridges.delete(rules.bridge)),
    });
  }

  async removeBridge(bridge: string): Promise<void> {
    await this.#change({ apply: () => this.#bridges.delete(bridge), revert: () => undefined });
  }

  /** Opens ports: all or none. */
  async publish(ports: readonly PortRule[]): Promise<void> {
    if (ports.length === 0) return;
    await this.#change({
      apply: () => {
        for (const port of ports) this.#ports.add(port);
        // A container of an earlier run no longer has the port, but its rule would win because it comes first.
        const taken = ports.map(({ protocol, hostPort }) => `-m ${protocol} --dport ${hostPort} `);
        this.#inherited = this.#inherited.filter((rule) => !taken.some((match) => rule.includes(match)));
      },
      revert: () => {
        for (const port of ports) this.#ports.delete(port);
      },
    });
  }

  /** Closes ports. The objects are those that were published. */
  async unpublish(ports: readonly PortRule[]): Promise<void> {
    if (!ports.some((port) => this.#ports.has(port))) return;
    await this.#change({
      apply: () => {
        for (const port of ports) this.#ports.delete(port);
      },
      revert: () => undefined,
    });
  }

  /** Makes these the links of an endpoint. */
  async setLinks(owner: string, links: readonly LinkRule[]): Promise<void> {
    const before = this.#links.get(owner);
    const put = (rules: readonly LinkRule[] | undefined): void =>
      void (rules && rules.length > 0 ? this.#links.set(owner, rules) : this.#links.delete(owner));
    await this.#change({ apply: () => put(links), revert: () => put(before) });
  }

  #look(): void {
    const isDue = ++this.#looks % LOOKS_TO_FULL_CHECK === 0;
    if (this.#isWorking || (!isDue && this.#watch?.fingerprint() === this.#fingerprint)) return;
    this.#change({ apply: () => undefined, revert: () => undefined, isCheck: true }).catch((error: unknown) =>
      this.options.log.error({ err: error }, 'the packet filter cannot be checked'),
    );
  }

  /** Lets the rules stand as they are. */
  close(): void {
    clearInterval(this.#timer);
    this.#watch?.close();
    this.#watch = undefined;
  }

  /** Takes away all that is ours, when all changes are done. */
  async remove(): Promise<void> {
    // A look in the middle of this would put back what is being taken away.
    this.close();
    while (this.#isWorking) await this.#work;
    await this.#read();
    for (const [family, tables] of this.#known)
      await applyScript(
        family,
        removalScript(tables, chainsOf(this.#ruleset(), family), jumpsOf(this.#ruleset(), family)),
      );
    this.#known.clear();
  }

  async #change(change: Change): Promise<void> {
    if (this.options.families.length === 0) {
      change.apply();
      return;
    }
    await new Promise<void>((resolve, reject) => {
      this.#queue.push({ ...change, resolve, reject });
      if (this.#isWorking) return;
      this.#isWorking = true;
      this.#work = this.#drain();
    });
  }

  async #drain(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue;
      this.#queue = [];
      const failure = await this.#perform(batch);
      if (failure === undefined) for (const { resolve } of batch) resolve();
      else if (batch.length === 1) batch[0]?.reject(failure.error);
      // One of them is refused: the others must not suffer for it.
      else for (const change of batch) settle(change, await this.#perform([change]));
    }
    this.#isWorking = false;
  }

  /** Makes the changes, all or none. */
  async #perform(batch: readonly Waiting[]): Promise<{ readonly error: unknown } | undefined> {
    for (const { apply } of batch) apply();
    const isCheck = batch.some((change) => change.isCheck);
    const found = this.#watch?.fingerprint() ?? '';
    const isKnown = found === this.#fingerprint;
    try {
      if (isCheck) await this.#read();
      const hasWritten = await this.#write().catch(async (error: unknown) => {
        // Somebody has changed our chains: compare with what is really there.
        this.options.log.debug({ err: error }, 'the packet filter is not as it was left');
        await this.#read();
        return this.#write();
      });
      const left = this.#watch?.fingerprint() ?? '';
      // A program that flushes once may flush again, between our rules and this check. Only a check that finds nothing
      // to change, and no flush during it, ends the checks. The next check finds a difference that remains.
      if (isCheck) this.#fingerprint = hasWritten || left !== found ? '' : left;
      else if (isKnown) this.#fingerprint = left;
      return undefined;
    } catch (error) {
      this.#fingerprint = '';
      for (const { revert } of batch.toReversed()) revert();
      return { error };
    }
  }

  /** Returns whether anything had to be done. */
  async #write(): Promise<boolean> {
    let hasWritten = false;
    for (const family of this.options.families) {
      if (!this.#isUsed(family)) continue;
      const chains = this.#chains(family);
      const jumps = jumpsOf(this.#ruleset(), family);
      const script = restoreScript(this.#known.get(family) ?? new Map(), chains, jumps);
      if (script === '') continue;
      await applyScript(family, script);
      hasWritten = true;
      // The kernel has taken all of it: what is wanted is what is there.
      const tables = new Map<string, Map<string, readonly string[]>>([
        ['filter', new Map([[USER_CHAIN, []]])],
        ['nat', new Map()],
      ]);
      for (const { table, name, rules } of chains) tables.get(table)?.set(name, rules);
      for (const { table, chain, rules } of jumps) tables.get(table)?.set(chain, rules);
      this.#known.set(family, tables);
    }
    return hasWritten;
  }

  async #read(): Promise<void> {
    await Promise.all(
      this.options.families.map(async (family) => {
        if (this.#known.has(family) && !this.#isUsed(family)) return;
        try {
          this.#known.set(family, await readTables(family));
        } catch (error) {
          // A host without IPv6 rules is in order as long as no network has IPv6.
          if (this.#isUsed(family) || family === 4) throw error;
        }
      }),
    );
  }

  /** Where there is no network there are no chains, unless some are left to be emptied. */
  #isUsed(family: Family): boolean {
    const hasChains = this.#known.get(family)?.get('nat')?.has(dnatChain(this.options.tag)) === true;
    return hasChains || [...this.#bridges.values()].some(({ subnets }) => subnets[family] !== undefined);
  }

  #ruleset(): Ruleset {
    return {
      tag: this.options.tag,
      userlandProxy: this.options.userlandProxy,
      bridged: this.#bridged,
      bridges: [...this.#bridges.values()],
      ports: [...this.#ports],
      links: [...this.#links.values()].flat(),
    };
  }

  /** Returns the wanted rules, including translations that wait for their containers. */
  #chains(family: Family): Chain[] {
    const inherited = this.#inherited.filter((rule) => rule.includes('--to-destination [') === (family === 6));
    return chainsOf(this.#ruleset(), family).map((chain) => {
      if (chain.name !== dnatChain(this.options.tag) || inherited.length === 0) return chain;
      return { ...chain, rules: [...new Set([...inherited, ...chain.rules])] };
    });
  }
}

function settle({ resolve, reject }: Waiting, failure: { readonly error: unknown } | undefined): void {
  if (failure === undefined) resolve();
  else reject(failure.error);
}
