/** What is on disk about networks: who the predefined ones are, and those that users made. */
import { randomBytes } from 'node:crypto';
import type { NetworkSummary } from '../ports/network.js';
import type { OpenOptions } from './network-maker.js';

export interface RecordFile {
  read(): Promise<unknown>;
  /** Durable when it resolves. What is `urgent` does not wait for room on the disk. */
  write(value: unknown, urgent?: boolean): Promise<void>;
}

export interface Identity {
  readonly id: string;
  readonly created: string;
}

/** A network that a user made. */
export interface UserNetwork extends OpenOptions {
  readonly summary: NetworkSummary;
  /** Another process is being asked to make it, or to take it away. */
  readonly isPending?: boolean;
}

type Stored = Readonly<Record<'bridge' | 'host' | 'none', Identity>> & {
  /** The default bridge that this daemon made and must take away again, also after a crash. */
  readonly made?: string;
  readonly networks?: readonly UserNetwork[];
};

export class NetworkRecords {
  private constructor(
    private readonly file: RecordFile,
    private stored: Stored,
  ) {}

  /** Reads them; a first start gives the predefined networks their identities. */
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

  find(id: string): UserNetwork | undefined {
    return this.networks.find(({ summary }) => summary.id === id);
  }

  isBridgeMade(name: string): boolean {
    return this.stored.made === name;
  }

  /** To be called before it is made: a crash in between must not leave a bridge that nobody owns. */
  async noteBridge(name: string): Promise<void> {
    if (!this.isBridgeMade(name)) await this.#save({ ...this.stored, made: name });
  }

  /** To be called before it is made. */
  add(network: UserNetwork): Promise<void> {
    return this.#save({ ...this.stored, networks: [...this.networks, network] });
  }

  /** In the place of the one with the same ID. */
  replace(network: UserNetwork): Promise<void> {
    return this.#save({ ...this.stored, networks: this.networks.map((each) => (each.summary.id === network.summary.id ? network : each)) });
  }

  remove(id: string): Promise<void> {
    return this.#save({ ...this.stored, networks: this.networks.filter(({ summary }) => summary.id !== id) }, true);
  }

  async #save(stored: Stored, urgent = false): Promise<void> {
    await this.file.write(stored, urgent);
    this.stored = stored;
  }
}

function freshIdentity(): Identity {
  return { id: randomBytes(32).toString('hex'), created: new Date().toISOString() };
}
