/** Makes network namespaces for containers, and configures them. */
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { createNetns, inNetns, keepNetns, listNetns, removeNetns } from '../sys/process/netns.js';
import { Netlink } from '../sys/netlink/route-netlink.js';
import type { LinkParameter } from './endpoint-options.js';
import { plugWithoutIpv6, setIpv6, setParameter } from './link-parameters.js';
import type { WayOut } from './ways-out.js';

const LOOPBACK_INDEX = 1;

export class Sandboxes {
  /** Sockets inside new sandboxes, whose first endpoint is still to be configured. */
  readonly #fresh = new Map<string, Netlink>();
  /** Removals under way; the next sandbox of a container has the same path. */
  readonly #removals = new Map<string, Promise<void>>();

  /** @param root directory of the namespaces' mounts; each has the name of its container. */
  constructor(private readonly root: string) {}

  ids(): string[] {
    return listNetns(this.root);
  }

  path(containerId: string): string {
    return join(this.root, containerId);
  }

  /**
   * Makes a sandbox with loopback up, or takes the namespace of a process, and replaces an old one. Returns its path.
   */
  async create(containerId: string, pid?: number): Promise<string> {
    const path = this.path(containerId);
    await this.remove(containerId);
    const open = (): Netlink => new Netlink();
    const inside = pid === undefined ? createNetns(path, open) : keepNetns(path, pid, open);
    try {
      await inside.configure(LOOPBACK_INDEX, { addresses: [], gateways: [] });
    } catch (error) {
      inside.close();
      await removeNetns(path);
      throw error;
    }
    this.#fresh.set(containerId, inside);
    return path;
  }

  remove(containerId: string): Promise<void> {
    this.#fresh.get(containerId)?.close();
    this.#fresh.delete(containerId);
    const path = this.path(containerId);
    const removal =
      this.#removals.get(containerId) ?? removeNetns(path).finally(() => this.#removals.delete(containerId));
    this.#removals.set(containerId, removal);
    return removal;
  }

  /** Runs `work` with a socket inside a sandbox, and with a descriptor of the sandbox, to put links there. */
  async within<T>(containerId: string, work: (inside: Netlink, netnsFd: number) => Promise<T>): Promise<T> {
    const path = this.path(containerId);
    const netnsFd = openSync(path, 'r');
    let inside: Netlink | undefined;
    try {
      inside = this.#fresh.get(containerId) ?? inNetns(path, () => new Netlink());
      this.#fresh.delete(containerId);
      return await work(inside, netnsFd);
    } finally {
      closeSync(netnsFd);
      inside?.close();
    }
  }

  /** Has `plug` put a link into a sandbox, and prepares for what `setParameters` sets. */
  async plug(containerId: string, hasIpv6: boolean, plug: () => Promise<void>): Promise<void> {
    const path = this.path(containerId);
    await (hasIpv6 ? plug() : plugWithoutIpv6((open) => inNetns(path, open), plug));
  }

  /**
   * Sets kernel parameters of a link: whether it has IPv6, then the ones that a client wants.
   * @throws EngineError internal naming the file: it does not exist, or cannot have the value.
   */
  async setParameters(
    containerId: string,
    link: string,
    hasIpv6: boolean,
    parameters: readonly LinkParameter[],
  ): Promise<void> {
    const path = this.path(containerId);
    // /proc/sys/net shows the namespace of the thread that opens its files.
    await setIpv6(link, hasIpv6, (open) => inNetns(path, open));
    if (parameters.length === 0) return;
    inNetns(path, () => {
      for (const { directory, name, value } of parameters)
        setParameter(`/proc/sys/net/${directory}/${link}/${name}`, value);
    });
  }

  /** Deletes a link, which deletes its other end, too. */
  async unplug(containerId: string, interfaceName: string): Promise<void> {
    if (interfaceName !== '') await this.within(containerId, (inside) => inside.deleteLinks([interfaceName]));
  }

  /** Moves a link into the daemon's namespace under another name; a missing link is ignored. */
  async eject(containerId: string, interfaceName: string, name: string): Promise<void> {
    const home = openSync('/proc/self/ns/net', 'r');
    try {
      await this.within(containerId, async (inside) => {
        if (inside.indexOf(interfaceName) !== undefined)
          await inside.moveLink(interfaceName, { name, mac: Buffer.alloc(0), netnsFd: home });
      });
    } finally {
      closeSync(home);
    }
  }

  /** Sets the default routes of a sandbox. */
  async route(containerId: string, ways: readonly WayOut[]): Promise<void> {
    if (ways.length === 0) return;
    await this.within(containerId, async (inside) => {
      for (const { endpoint, gateway } of ways) {
        const index = inside.indexOf(endpoint.interfaceName);
        if (index !== undefined) await inside.configure(index, { addresses: [], gateways: [gateway] });
      }
    });
  }

  /** Closes the sockets; the sandboxes stay. */
  close(): void {
    for (const inside of this.#fresh.values()) inside.close();
  }
}
