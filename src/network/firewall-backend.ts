/** The contract between the firewall and a program that writes the kernel's packet filter. */
import type { Ruleset } from './firewall-rules.js';
import type { Family } from './subnet.js';

/** A translation of an earlier run of the daemon, in the words of the program that reads and writes it. */
export interface InheritedRule {
  readonly family: Family;
  readonly protocol: string;
  readonly hostPort: number;
  readonly text: string;
}

export interface FirewallBackend {
  /** Reads what the kernel has of a family. Throws internal, code FIREWALL. */
  read(family: Family): Promise<void>;
  /**
   * Returns the command that lifts a policy to refuse what is forwarded, as it was read; undefined if there is no such
   * policy. It would refuse what containers send and get when another backend writes the rules that accept this.
   */
  policyRemedy(family: Family): string | undefined;
  /** Tells whether the daemon's rules of a family are in the kernel, as far as is known. */
  has(family: Family): boolean;
  /** Returns the translations of an earlier run, as they were read. */
  inherited(): readonly InheritedRule[];
  /**
   * Writes the wanted rules of a family where they differ, all of a table or none; `inherited` come first among the
   * translations. Returns whether there was anything to do. Throws internal, code FIREWALL.
   */
  write(family: Family, ruleset: Ruleset, inherited: readonly InheritedRule[]): Promise<boolean>;
  /** Removes the daemon's rules of a family, as they were read. Throws internal, code FIREWALL. */
  remove(family: Family): Promise<void>;
  /** Tells whether the rules are in the tables of the kernel's old packet filter. Throws internal, code FIREWALL. */
  isLegacy(): Promise<boolean>;
  /**
   * Sees to it that the kernel forwards packets of a family. With `refuseOthers`, a host that did not forward refuses
   * what no rule accepts, from before the first packet on. Throws internal, code FIREWALL.
   */
  allowForwarding(family: Family, refuseOthers: boolean): Promise<void>;
}
