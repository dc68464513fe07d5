/** The network driver over real namespaces, bridges and iptables, under names of its own. */
import { type ChildProcess, type ChildProcessByStdio, execFileSync, fork, spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { HostNetworks } from '../../src/network/host-networks.js';
import { ProtocolNetworkPlugins } from '../../src/plugins/network-plugins.js';
import { NO_KEPT_SOCKETS } from '../../src/ports/kept-sockets.js';
import type { Logger } from '../../src/ports/logger.js';
import type { AttachRequest, AttachResult, PublishedPort } from '../../src/ports/network.js';
import { inNetns } from '../../src/sys/process/netns.js';
import { testedBackend } from './tested-backend.js';

export interface NetworkPlan {
  readonly bridge: string;
  /** Address and prefix length of the bridge. */
  readonly bip: string;
  readonly netnsRoot: string;
  readonly icc: boolean;
  readonly iptables: boolean;
  readonly firewallBackend: 'iptables' | 'nftables';
  readonly ipv6: boolean;
  readonly userlandProxy: boolean;
  readonly addressPools: readonly { readonly base: string; readonly size: number }[];
}

const SUBNETS = 2 ** 16;
/** The next of 10.0.0.0/8. Others may run the same tests on this machine, so it begins anywhere. */
let nextSubnet = randomInt(SUBNETS);

/** Has a bridge and a subnet that no other plan of this process has: a driver's bridge may outlast its test. */
export function networkPlan(directory: string, changes: Partial<NetworkPlan> = {}): NetworkPlan {
  nextSubnet = (nextSubnet + 1) % SUBNETS;
  const bridge = `engt${randomBytes(3).toString('hex')}`;
  return {
    bridge,
    bip: `10.${nextSubnet >> 8}.${nextSubnet & 0xff}.1/24`,
    netnsRoot: `${directory}/${bridge}`,
    icc: true,
    iptables: true,
    firewallBackend: testedBackend(),
    ipv6: false,
    userlandProxy: true,
    addressPools: [],
    ...changes,
  };
}

/** A driver as the daemon makes it. `identities` outlives it, as the daemon's data directory does. */
export function networksOf(
  plan: NetworkPlan,
  log: Logger,
  identities: { value: unknown } = { value: undefined },
): HostNetworks {
  return new HostNetworks({
    outerPorts: undefined,
    bridge: {
      name: plan.bridge,
      bip: plan.bip,
      bip6: '',
      fixedCidr: '',
      fixedCidrV6: '',
      defaultGateway: '',
      defaultGatewayV6: '',
      mtu: 1400,
      icc: plan.icc,
      ipMasq: true,
      ipv6: plan.ipv6,
    },
    iptables: plan.iptables,
    firewallBackend: plan.firewallBackend,
    ip6tables: true,
    ipForward: true,
    ipForwardNoDrop: true,
    userlandProxy: plan.userlandProxy,
    directRouting: false,
    addressPools: plan.addressPools,
    defaultNetworkOptions: {},
    nameservers: () => [],
    publishIp: '0.0.0.0',
    keptSockets: NO_KEPT_SOCKETS,
    netnsRoot: plan.netnsRoot,
    log,
    plugins: new ProtocolNetworkPlugins(),
    pluginDebts: { read: () => Promise.resolve(undefined), write: () => Promise.resolve() },
    identities: {
      read: () => Promise.resolve(identities.value),
      write: (value) => {
        identities.value = value;
        return Promise.resolve();
      },
    },
  });
}

export interface Sandbox extends AttachResult {
  readonly id: string;
  readonly path: string;
}

/** A namespace with an endpoint on the default bridge. */
export async function attachSandbox(
  networks: HostNetworks,
  ports: readonly PublishedPort[] = [],
  changes: Partial<AttachRequest> = {},
): Promise<Sandbox> {
  const id = randomBytes(32).toString('hex');
  const path = await networks.createSandbox(id);
  try {
    const result = await networks.attach({
      containerId: id,
      network: 'bridge',
      aliases: [],
      dnsNames: ['web'],
      ports,
      ...changes,
    });
    return { id, path, ...result };
  } catch (error) {
    await networks.removeSandbox(id);
    throw error;
  }
}

export async function detachSandbox(networks: HostNetworks, { id, endpoint }: Sandbox): Promise<void> {
  await networks.detach(id, endpoint);
  await networks.removeSandbox(id);
}

/** Runs a program inside the namespace to its end and returns its output; throws when it fails. */
export function runInside(path: string, program: string, ...args: readonly string[]): string {
  return inNetns(path, () =>
    execFileSync(program, args, { encoding: 'utf8', timeout: 10_000, stdio: ['ignore', 'pipe', 'pipe'] }),
  );
}

/** As `runInside`, while this process goes on with its own work. */
export async function outputInside(path: string, program: string, ...args: readonly string[]): Promise<string> {
  const child = inNetns(path, () => spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], timeout: 30_000 }));
  return text(child.stdout);
}

/** Starts a program inside the namespace; the caller ends it. */
export function startInside(
  path: string,
  program: string,
  ...args: readonly string[]
): ChildProcessByStdio<null, Readable, null> {
  return inNetns(path, () => spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] }));
}

export async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

/** The packet filter without what drivers of these tests make; byte for byte otherwise, counters left out. */
export function foreignRules(): string {
  return ['iptables-save', 'ip6tables-save']
    .map((program) => execFileSync(program, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }))
    .join('')
    .split('\n')
    .filter((line) => !line.startsWith('#') && !/engt[0-9a-f]{6}/.test(line) && !line.includes('ENGINE-USER'))
    .map((line) => line.replace(/ \[\d+:\d+\]$/, ''))
    .join('\n');
}

/** Lines of the packet filter that the driver of this plan has written. */
export function driverRules({ bridge, firewallBackend }: NetworkPlan, family: 4 | 6 = 4): string[] {
  if (firewallBackend === 'iptables')
    return execFileSync(family === 4 ? 'iptables-save' : 'ip6tables-save', { encoding: 'utf8' })
      .split('\n')
      .filter((line) => line.includes(bridge));
  const all = execFileSync('nft', ['-n', '-s', 'list', 'ruleset'], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  }).split('\n');
  const begin = all.indexOf(`table ${family === 4 ? 'ip' : 'ip6'} engine-bridges-${bridge} {`);
  return begin < 0 ? [] : all.slice(begin, all.indexOf('}', begin));
}

/** Removes translations and a part of what filters, as somebody else may. */
export function flushDriverRules({ bridge, firewallBackend }: NetworkPlan): void {
  const commands =
    firewallBackend === 'iptables'
      ? [`iptables -w -t nat -F ENGINE-DNAT-${bridge}`, `iptables -w -D FORWARD -j ENGINE-IN-${bridge}`]
      : [`nft flush chain ip engine-bridges-${bridge} ports`, `nft flush chain ip engine-bridges-${bridge} forward`];
  for (const command of commands) {
    const [program = '', ...args] = command.split(' ');
    execFileSync(program, args);
  }
}

export interface ChildReport {
  readonly sandboxes: readonly Sandbox[];
  readonly identities: unknown;
}

/** Attaches a sandbox for each list of ports in a process of its own, which then dies as a crashed daemon does. */
export async function attachAndCrash(
  module: string,
  plan: NetworkPlan,
  ports: readonly (readonly PublishedPort[])[],
): Promise<ChildReport> {
  const child = fork(module, [JSON.stringify({ plan, ports })], {
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const [report] = (await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(([code]) => {
      throw new Error(`the process that was to crash ended with ${String(code)}`);
    }),
  ])) as [ChildReport];
  await endProcess(child);
  return report;
}
