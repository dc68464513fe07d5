/** The data on disk about networks: the IDs of the predefined ones, and the networks that users made. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { NetworkSummary } from '../ports/network.js';
import type { Link, LinkAddress } from '../sys/netlink/route-netlink.js';
import type { OpenOptions } from './open-options.js';

export interface RecordFile {
  read(): Promise<unknown>;
  /** Writes the record; durable when it resolves. An `urgent` write may use reserved space when the disk is full. */
  write(value: unknown, urgent?: boolean): Promise<void>;
}

export interface Identity {
  readonly id: string;
  readonly created: string;
}

/** A network that a user made. */
export interface UserNetwork extends OpenOptions {
  readonly summary: NetworkSummary;
  /** True while another process is being asked to make the network or to remove it. */
  readonly isPending?: boolean;
  /** Since this time (RFC 3339) it is being removed: it is gone for clients, and nobody may have been told. */
  readonly leavingSince?: string;
}

/** A network that is gone. */
export interface RemovedNetwork {
  readonly id: string;
  readonly name: string;
  readonly driver: string;
  /** RFC 3339. */
  readonly removed: string;
}

/** Removals are told within moments; these bounds are for what nobody takes out of the file. */
const REMEMBERED_MS = 60_000;
const MAX_REMEMBERED = 64;

interface Lent {
  /** Name of the bridge. `made` tells it from others of that name by the time at which the kernel made it. */
  readonly link: string;
  readonly made: string;
  readonly addresses: readonly LinkAddress[];
}

type Stored = Readonly<Record<'bridge' | 'host' | 'none', Identity>> & {
  /** Name of the default bridge that an earlier version of the daemon made. */
  readonly made?: string;
  /** The default bridge that this daemon makes and must remove again, also after a crash. */
  readonly ownBridge?: { readonly name: string; readonly mac: string };
  /** Addresses that were given to bridges of others. */
  readonly lent?: readonly Lent[];
  readonly networks?: readonly UserNetwork[];
  /** The last ones that were removed: nobody may have been told of it. */
  readonly removed?: readonly RemovedNetwork[];
};

export class NetworkRecords {
  #saved: Promise<void> = Promise.resolve();

  private constructor(
    private readonly file: RecordFile,
    private stored: Stored,
  ) {}

  /** Reads the records; a first start gives the predefined networks their identities. */
  static async open(file: RecordFile): Promise<NetworkRecords> {
    const found = (await file.read()) as Stored | undefined;
    if (found) return new NetworkRecords(file, found);
    const records = new NetworkRecords(file, { bridge: freshIdentity(), host: freshIdentity(), none: freshIdentity() });
    await file.write(records.stored);
    return records;
  }

  identity(name: 'bridge' | 'host' | 'none'): Identity {
    return this.stored[name];
  }

  get networks(): readonly UserNetwork[] {
    return this.stored.networks ?? [];
  }

  /** Returns the networks that were removed in the last moments before the last change, or are being removed. */
  get removed(): readonly RemovedNetwork[] {
    const leaving = this.networks.flatMap(({ summary: { id, name, driver }, leavingSince: removed }) =>
      removed === undefined ? [] : [{ id, name, driver, removed }],
    );
    return [...(this.stored.removed ?? []), ...leaving];
  }

  find(id: string): UserNetwork | undefined {
    return this.networks.find(({ summary }) => summary.id === id);
  }

  /**
   * Returns the MAC address of the default bridge of this name if this daemon makes it; `existing` may be one that an
   * earlier version made.
   */
  ownBridge(name: string, existing: Link | undefined): string | undefined {
    const { ownBridge, made } = this.stored;
    if (ownBridge?.name === name) return ownBridge.mac;
    // The addresses that those versions gave had only their beginning in common.
    return made === name && existing?.mac.startsWith('02:42:') === true ? existing.mac : undefined;
  }

  /**
   * Notes the default bridge. Call it before the bridge is made, so that a crash in between leaves no bridge without an
   * owner.
   */
  async noteBridge(name: string, mac: string): Promise<void> {
    const { ownBridge } = this.stored;
    if (ownBridge?.name !== name || ownBridge.mac !== mac)
      await this.#save((stored) => ({ ...stored, ownBridge: { name, mac } }));
  }

  /** Returns the addresses that this daemon gave to a bridge. */
  lent(link: Link): readonly LinkAddress[] {
    return this.stored.lent?.find((each) => each.link === link.name && each.made === madeOf(link))?.addresses ?? [];
  }

  /**
   * Notes these as the only addresses that a bridge has from this daemon; this must be called before the bridge has
   * them.
   */
  async lend(link: Link, addresses: readonly LinkAddress[]): Promise<void> {
    const { name } = link;
    if (addresses.length === 0 && this.stored.lent?.some((each) => each.link === name) !== true) return;
    const lent = addresses.length > 0 ? [{ link: name, made: madeOf(link), addresses }] : [];
    await this.#save((stored) => ({
      ...stored,
      lent: [...(stored.lent ?? []).filter((each) => each.link !== name), ...lent],
    }));
  }

  /** Adds a network. Call it before the network is made. */
  add(network: UserNetwork): Promise<void> {
    return this.#save((stored) => ({ ...stored, networks: [...(stored.networks ?? []), network] }));
  }

  /** Replaces the network with the same ID. */
  replace(network: UserNetwork): Promise<void> {
    const isSame = ({ summary }: UserNetwork): boolean => summary.id === network.summary.id;
    return this.#save((stored) => ({
      ...stored,
      networks: (stored.networks ?? []).map((each) => (isSame(each) ? network : each)),
    }));
  }

  /** Removes the record of a network that nobody was told of. */
  forget(id: string): Promise<void> {
    return this.#save((stored) => withoutNetwork(stored, id), true);
  }

  /** Removes the record of a network, but remembers it for a moment, so that a crash leaves no removal untold. */
  remove({ id, name, driver }: NetworkSummary): Promise<void> {
    return this.#save((stored) => {
      const sinceMs = Date.now() - REMEMBERED_MS;
      const recent = (stored.removed ?? []).filter(({ removed }) => Date.parse(removed) > sinceMs);
      const removed = [...recent, { id, name, driver, removed: new Date().toISOString() }].slice(-MAX_REMEMBERED);
      return { ...withoutNetwork(stored, id), removed };
    }, true);
  }

  /** Changes the records; each change is made to the result of the one before. */
  #save(change: (stored: Stored) => Stored, urgent = false): Promise<void> {
    const saved = this.#saved.then(async () => {
      const stored = change(this.stored);
      await this.file.write(stored, urgent);
      this.stored = stored;
    });
    this.#saved = saved.catch(() => undefined);
    return saved;
  }
}

function withoutNetwork(stored: Stored, id: string): Stored {
  return { ...stored, networks: (stored.networks ?? []).filter(({ summary }) => summary.id !== id) };
}

/**
 * Identifies a link by its index: a bridge's MAC address may follow its ports, but the kernel uses no index twice until
 * the machine restarts.
 */
function madeOf({ index }: Link): string {
  return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${index}`;
}

function freshIdentity(): Identity {
  return { id: randomBytes(32).toString('hex'), created: new Date().toISOString() };
}
