/** The network of a RUN: a namespace with a link to the default bridge, one with nothing but itself, or the host's. */
import type { NetworkDriver } from '../../../ports/network.js';
import type { Undo } from '../../container/life/undo.js';
import type { StepNetwork } from './entitlements.js';

export class StepSandbox {
  /** undefined: the host's, or one that the runtime makes. */
  path: string | undefined;

  constructor(
    private readonly network: NetworkDriver,
    private readonly id: string,
    private readonly mode: StepNetwork,
    /** The namespace must belong to the user namespace, which only the runtime makes. */
    private readonly hasUserNamespace: boolean,
    private readonly undo: Undo,
  ) {}

  /** Makes the namespace, before the runtime needs it. */
  async open(): Promise<void> {
    if (this.mode === 'host' || this.hasUserNamespace) return;
    this.path = await this.#create();
  }

  /** Joins the network while the runtime works; `undo` leaves it. */
  async join(created: Promise<{ readonly pid: number }>, undo: Undo): Promise<void> {
    if (this.mode === 'host') return;
    if (this.hasUserNamespace) await this.#create((await created).pid);
    if (this.mode === 'none') return;
    const { id: containerId, network } = this;
    const { endpoint } = await network.attach({ containerId, network: 'bridge', aliases: [], dnsNames: [], ports: [] });
    undo.add('network endpoint', () => network.detach(containerId, endpoint));
  }

  async #create(pid?: number): Promise<string> {
    const path = await this.network.createSandbox(this.id, pid);
    this.undo.add('network namespace', () => this.network.removeSandbox(this.id));
    return path;
  }
}
