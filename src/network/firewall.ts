/**
 * Keeps the kernel's packet filter as the networks want it. Changes that come together are applied in one batch. If
 * somebody else flushes rules, they are put back.
 */
import type { Logger } from '../ports/logger.js';
import { RulesetWatch } from '../sys/netlink/netfilter.js';
import type { FirewallBackend, InheritedRule } from './firewall-backend.js';
import type { BridgeRules, LinkRule, PortRule, Ruleset } from './firewall-rules.js';
import { enableForwarding, filterBridged } from './forwarding.js';
import type { Family } from './subnet.js';

export interface FirewallOptions {
  /** Part of the chains' names that belongs to the daemon, at most 15 characters. */
  readonly tag: string;
  readonly backend: FirewallBackend;
  /** Backends that earlier runs of the daemon may have used. */
  readonly others: readonly FirewallBackend[];
  /** The families to write rules for; without any, nothing is touched. */
  readonly families: readonly Family[];
  readonly userlandProxy: boolean;
  readonly directRouting: boolean;
  readonly log: Logger;
}

/** Changes by others are looked for this often. */
const WATCH_MS = 1000;
/**
 * A change by others at the same time as ours cannot be told from it. So after this many looks, the kernel is asked in
 * any case.
 */
const LOOKS_TO_FULL_CHECK = 30;

interface Change {
  readonly apply: () => void;
  readonly revert: () => void;
  /** True if the kernel's rules must be read first. */
  readonly isCheck?: boolean;
}

interface Waiting extends Change {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class Firewall {
  readonly #bridges = new Map<string, BridgeRules>();
  readonly #ports = new Set<PortRule>();
  /** Links by the endpoint that may use them. */
  readonly #links = new Map<string, readonly LinkRule[]>();
  /** Translations of an earlier run, whose containers may still be taken over. */
  #inherited: readonly InheritedRule[] = [];
  #bridged: readonly Family[] = [];
  #queue: Waiting[] = [];
  #work: Promise<void> = Promise.resolve();
  #isWorking = false;
  #wasRead = false;
  #watch: RulesetWatch | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Identifies the kernel's rules as we left them. */
  #fingerprint = '';
  #looks = 0;

  constructor(private readonly options: FirewallOptions) {}

  /** Reads the kernel's rules. Ports of an earlier run stay open until they are claimed or `disown` is called. */
  async open(): Promise<void> {
    if (this.options.families.length === 0) return;
    const { families, userlandProxy } = this.options;
    this.#watch = new RulesetWatch(await this.options.backend.isLegacy());
    const found = this.#watch.fingerprint();
    const [bridged] = await Promise.all([userlandProxy ? [] : filterBridged(families), this.#read()]);
    this.#bridged = bridged;
    if (this.#watch.fingerprint() === found) this.#fingerprint = found;
    this.#timer = setInterval(() => this.#look(), WATCH_MS).unref();
    this.#inherited = this.options.backend.inherited();
  }

  /** Closes ports of an earlier run that nobody has claimed, and removes the rules that it wrote by another backend. */
  async disown(): Promise<void> {
    const { families, others, log } = this.options;
    // They come after the rules of this run, so that ports in use are open all the time.
    for (const other of others)
      for (const family of families)
        await other
          .read(family)
          .then(() => {
            this.#warnOfPolicy(other, family);
            return other.remove(family);
          })
          .catch((error: unknown) =>
            log.error({ err: error }, 'rules of another firewall backend are not removed, if an earlier run wrote any'),
          );
    if (this.#inherited.length > 0)
      await this.#change({ apply: () => (this.#inherited = []), revert: () => undefined });
  }

  /** Tells the operator of a policy that the rules of this backend cannot lift, and that may be an earlier run's. */
  #warnOfPolicy(other: FirewallBackend, family: Family): void {
    const remedy = other.policyRemedy(family);
    if (remedy === undefined) return;
    this.options.log.warn(
      { remedy },
      `the policy of iptables for forwarded IPv${family} packets is DROP: what containers exchange with others is ` +
        `dropped unless rules of iptables accept it; "${remedy}" lifts the policy`,
    );
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

  /** Opens all ports or none. */
  async publish(ports: readonly PortRule[]): Promise<void> {
    if (ports.length === 0) return;
    await this.#change({
      apply: () => {
        for (const port of ports) this.#ports.add(port);
        // A container of an earlier run no longer has the port, but its rule would win because it comes first.
        if (this.#inherited.length === 0) return;
        const taken = new Set(ports.map(hostPortOf));
        this.#inherited = this.#inherited.filter((rule) => !taken.has(hostPortOf(rule)));
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

  /** Sets the links of an endpoint, in place of those before. */
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

  /** Stops watching; the rules stay as they are. */
  close(): void {
    clearInterval(this.#timer);
    this.#watch?.close();
    this.#watch = undefined;
  }

  /** Removes all our rules, after the changes under way. */
  async remove(): Promise<void> {
    // Otherwise the watch could put back what is being removed.
    this.close();
    while (this.#isWorking) await this.#work;
    await this.#read();
    const { families, backend } = this.options;
    for (const family of families) await backend.remove(family);
  }

  /**
   * Sees to it that the host forwards packets of a family. With `refuseOthers`, a host that did not forward refuses
   * what no rule accepts, from before the first packet on.
   */
  async allowForwarding(family: Family, refuseOthers: boolean): Promise<void> {
    const { families, backend } = this.options;
    if (families.includes(family)) await backend.allowForwarding(family, refuseOthers);
    else await enableForwarding(family);
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
      // One of them is refused; each is tried alone, so that the others do not fail with it.
      else for (const change of batch) settle(change, await this.#perform([change]));
    }
    this.#isWorking = false;
  }

  /** Makes all changes or none. */
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

  /** Writes the wanted rules. Returns whether there was anything to do. */
  async #write(): Promise<boolean> {
    let hasWritten = false;
    for (const family of this.options.families) {
      if (!this.#isUsed(family)) continue;
      const inherited = this.#inherited.filter((rule) => rule.family === family);
      if (await this.options.backend.write(family, this.#ruleset(), inherited)) hasWritten = true;
    }
    return hasWritten;
  }

  async #read(): Promise<void> {
    await Promise.all(
      this.options.families.map(async (family) => {
        if (this.#wasRead && !this.#isUsed(family)) return;
        try {
          await this.options.backend.read(family);
        } catch (error) {
          // A host without IPv6 rules is all right as long as no network has IPv6.
          if (this.#isUsed(family) || family === 4) throw error;
        }
      }),
    );
    this.#wasRead = true;
  }

  /** Tells whether a family needs chains: it has a network, or chains are left to be emptied. */
  #isUsed(family: Family): boolean {
    return (
      this.options.backend.has(family) ||
      [...this.#bridges.values()].some(({ subnets }) => subnets[family] !== undefined)
    );
  }

  #ruleset(): Ruleset {
    return {
      tag: this.options.tag,
      userlandProxy: this.options.userlandProxy,
      directRouting: this.options.directRouting,
      bridged: this.#bridged,
      bridges: [...this.#bridges.values()],
      ports: [...this.#ports],
      links: [...this.#links.values()].flat(),
    };
  }
}

function hostPortOf({ protocol, hostPort }: PortRule | InheritedRule): string {
  return `${hostPort}/${protocol}`;
}

function settle({ resolve, reject }: Waiting, failure: { readonly error: unknown } | undefined): void {
  if (failure === undefined) resolve();
  else reject(failure.error);
}
