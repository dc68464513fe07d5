/** The default bridge: link, subnet and firewall of one bridge device on the host. */
import { readFile, writeFile } from 'node:fs/promises';
import { conflict, invalid, unavailable } from '../errors/engine-error.js';
import type { Netlink } from '../sys/route-netlink.js';
import { AddressPool } from './address-pool.js';
import { applyScript, baseRules, chains, missingJumps, restoreScript, type BridgeRules } from './firewall.js';
import { formatSubnet, mask, overlaps, parseSubnet, sizeOf, toAddress, toNumber, type Subnet } from './subnet.js';

export interface BridgeOptions {
  readonly name: string;
  /** Address and prefix of the bridge itself, `172.17.0.1/16`; '': the first free block of the pools. */
  readonly bip: string;
  /** Part of the subnet that containers get addresses from. */
  readonly fixedCidr: string;
  readonly defaultGateway: string;
  readonly mtu: number;
  readonly icc: boolean;
  readonly ipMasq: boolean;
  readonly ipForward: boolean;
  readonly ipForwardNoDrop: boolean;
  readonly iptables: boolean;
  readonly addressPools: readonly { readonly base: string; readonly size: number }[];
}

const DEFAULT_POOLS = [
  { base: '172.17.0.0/16', size: 16 },
  { base: '172.18.0.0/16', size: 16 },
  { base: '172.19.0.0/16', size: 16 },
  { base: '172.20.0.0/14', size: 16 },
  { base: '172.24.0.0/14', size: 16 },
  { base: '172.28.0.0/14', size: 16 },
  { base: '192.168.0.0/16', size: 20 },
];
const IP_FORWARD = '/proc/sys/net/ipv4/ip_forward';

/** A bridge that is up. */
export class Bridge {
  private constructor(
    readonly options: BridgeOptions,
    readonly index: number,
    readonly address: string,
    readonly pool: AddressPool,
    readonly gateway: string,
    private readonly netlink: Netlink,
    readonly isOurs: boolean,
  ) {}

  get subnet(): Subnet {
    return this.pool.subnet;
  }

  /** Makes the bridge or adopts the one that is there, with its address. `madeBefore`: an earlier run made it. */
  static async open(options: BridgeOptions, netlink: Netlink, madeBefore: boolean): Promise<Bridge> {
    const existing = await netlink.findLink(options.name);
    const addresses = await netlink.addresses();
    const current = existing && addresses.find(({ linkIndex }) => linkIndex === existing.index);
    const others = addresses.filter(({ linkIndex }) => linkIndex !== existing?.index).map(({ address, prefixLength }) => subnetOf(address, prefixLength));
    const own = options.bip !== '' ? parseBip(options.bip) : current ? { address: current.address, subnet: subnetOf(current.address, current.prefixLength) } : await freeSubnet(options, others);
    const clash = others.find((other) => overlaps(other, own.subnet));
    if (clash) throw conflict(`the subnet ${formatSubnet(own.subnet)} of bridge ${options.name} overlaps with ${formatSubnet(clash)} of this host; choose another one with --bip`);
    if (!existing) await netlink.createBridge(options.name, options.mtu);
    const link = await netlink.findLink(options.name);
    if (!link) throw unavailable(`the bridge ${options.name} vanished while it was made`);
    await netlink.configureLink(link.index, undefined);
    await netlink.addAddress(link.index, own.address, own.subnet.prefixLength);
    const range = options.fixedCidr === '' ? own.subnet : parseSubnet(options.fixedCidr, 'fixed-cidr');
    const pool = new AddressPool(own.subnet, range);
    pool.reserve(own.address);
    const gateway = options.defaultGateway || own.address;
    if (gateway !== own.address) pool.reserve(gateway);
    const bridge = new Bridge(options, link.index, own.address, pool, gateway, netlink, !existing || madeBefore);
    await bridge.#forward();
    if (options.iptables) await bridge.#installRules();
    return bridge;
  }

  get rules(): BridgeRules {
    return { bridge: this.options.name, subnet: formatSubnet(this.subnet), masquerade: this.options.ipMasq, interContainer: this.options.icc };
  }

  /** Switches forwarding on; whoever had it off did not expect his host to route, so foreign traffic stays refused. */
  async #forward(): Promise<void> {
    if (!this.options.ipForward || (await readFile(IP_FORWARD, 'utf8')).trim() === '1') return;
    await writeFile(IP_FORWARD, '1');
    if (this.options.iptables && !this.options.ipForwardNoDrop) await applyScript('*filter\n:FORWARD DROP [0:0]\nCOMMIT\n');
  }

  async #installRules(): Promise<void> {
    const { missing } = await missingJumps(this.rules);
    await applyScript(restoreScript({ declare: chains(this.rules), append: baseRules(this.rules), insert: missing }));
  }

  /** Takes the rules away, and the bridge when it was made here and nothing is attached. */
  async close(isIdle: boolean): Promise<void> {
    if (!isIdle) return;
    if (this.options.iptables) {
      const { present } = await missingJumps(this.rules);
      await applyScript(restoreScript({ remove: present, drop: chains(this.rules) }));
    }
    if (this.isOurs) await this.netlink.deleteLink(this.options.name);
  }
}

function subnetOf(address: string, prefixLength: number): Subnet {
  return { base: (toNumber(address) & mask(prefixLength)) >>> 0, prefixLength };
}

function parseBip(bip: string): { address: string; subnet: Subnet } {
  const subnet = parseSubnet(bip, 'bip');
  const address = bip.split('/')[0] ?? '';
  if (toNumber(address) === subnet.base) throw invalid(`invalid bip: ${bip} is the network's own address; give the bridge one inside it, such as ${toAddress(subnet.base + 1)}/${subnet.prefixLength}`);
  return { address, subnet };
}

/** The first block of the pools that no address or route of the host touches. */
async function freeSubnet(options: BridgeOptions, used: readonly Subnet[]): Promise<{ address: string; subnet: Subnet }> {
  const taken = [...used, ...(await hostRoutes())];
  for (const { base, size } of options.addressPools.length > 0 ? options.addressPools : DEFAULT_POOLS) {
    const pool = parseSubnet(base, 'default-address-pool');
    const step = 2 ** (32 - size);
    for (let start = pool.base; start < pool.base + sizeOf(pool); start += step) {
      const subnet = { base: start, prefixLength: size };
      if (!taken.some((other) => overlaps(other, subnet))) return { address: toAddress(start + 1), subnet };
    }
  }
  throw unavailable('all predefined address pools have been fully subnetted', { code: 'NO_SUBNET' });
}

/** Destinations of the host's IPv4 routes, the default route left out. */
async function hostRoutes(): Promise<Subnet[]> {
  const table = await readFile('/proc/net/route', 'utf8').catch(() => '');
  return table
    .split('\n')
    .slice(1)
    .flatMap((line) => {
      const [, destination = '', , , , , , netmask = ''] = line.split('\t');
      if (destination === '' || netmask === '00000000') return [];
      const swap = (hex: string): number => Buffer.from(hex, 'hex').readUInt32LE(0);
      return [{ base: swap(destination), prefixLength: swap(netmask).toString(2).replaceAll('0', '').length }];
    });
}
