/** Where the API listens: addresses, TLS and groups as the configuration has them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { isLoopbackHost, parseHost, type ListenAddress } from './config/hosts.js';
import type { FixedConfig } from './config/config.js';
import { tlsFiles } from './config/resolve.js';
import { parseAccessRule } from './config/scoped-sockets.js';
import type { LiveConfig } from './config/live-config.js';
import { EngineError, invalid, isEngineError } from './errors/engine-error.js';
import { accessPolicy, type AccessPolicy } from './http/access-policy.js';
import { BrowserGuard } from './http/browser-guard.js';
import type { CloseOptions } from './http/closing.js';
import type { Front } from './http/front.js';
import type { RequestSummary } from './http/gate.js';
import type { Listener, ListenSpec } from './http/listener.js';
import { TlsIdentity } from './http/tls-identity.js';
import type { Logger } from './ports/logger.js';
import type { ServiceManager } from './service-manager.js';
import { selectActivationSockets, type ActivationSocket } from './sys/process/activation.js';
import { groupId } from './sys/users/group.js';

const CONSEQUENCE = 'everybody who reaches that address has the rights of root on this machine';
/** Addresses that are open to everybody, although no option says that they should be, are held back this long. */
const EXPOSURE_PAUSE_MS = 5000;

export class ApiListeners {
  readonly #live: LiveConfig;
  readonly #config: FixedConfig;
  readonly #log: Logger;
  readonly #tls: TlsIdentity | undefined;
  readonly #addresses: readonly SocketAddress[];
  readonly #activated: readonly ActivationSocket[];
  readonly #listeners: Listener[] = [];
  readonly #warnings: string[] = [];
  readonly #closing = new AbortController();

  /** Checks the addresses and TLS files; opens nothing yet. @throws EngineError for those that cannot be used. */
  constructor(live: LiveConfig, manager: ServiceManager, log: Logger) {
    const config = live.fixed;
    this.#live = live;
    this.#config = config;
    this.#log = log;
    const parsed = config.hosts.map((host) => parseHost(host, { tls: config.tls }));
    // Two spellings of one address are one.
    const addresses = [...new Map(parsed.map((address) => [JSON.stringify(address), address])).values()];
    this.#addresses = addresses.filter((address) => address.kind !== 'fd');
    this.#activated = chooseActivated(addresses, manager.sockets, log);
    this.#tls = tlsIdentity(config);
    if (this.#tls) followReloads(live, this.#tls, log);
  }

  get addresses(): readonly string[] {
    return this.#listeners.map(({ address }) => address);
  }

  /** Returns the requests that have no complete reply now, by the address of the listener that took them. */
  inFlight(): Readonly<Record<string, readonly RequestSummary[]>> {
    return Object.fromEntries(this.#listeners.map((listener) => [listener.address, listener.inFlight()]));
  }

  /** Returns the warnings of `info` about addresses that are open to everybody. */
  get warnings(): readonly string[] {
    return this.#warnings;
  }

  /**
   * Opens all addresses. @throws EngineError as `Front.listen`; not-found for a group that the operator named and the
   * host lacks.
   */
  async open(front: Front): Promise<void> {
    const gid = this.#groupOfSockets();
    // A group that is missing ends the start before anything is served.
    const scoped = this.#config.sockets.map(({ host, group, allow }) => ({
      spec: this.#listenSpec(scopedAddress(host, this.#config.tls), group === '' ? undefined : groupId(group)),
      policy: accessPolicy(allow.map(parseAccessRule)),
    }));
    const plans: Plan[] = [
      ...this.#activated.map((socket) => ({ spec: this.#activatedSpec(socket) })),
      ...this.#addresses.map((address) => ({ spec: this.#listenSpec(address, gid) })),
      ...scoped,
    ];
    // Clients that can be served safely do not wait for the other addresses.
    const exposed = plans.filter(({ spec }) => this.#isExposed(spec));
    for (const plan of plans) if (!exposed.includes(plan)) await this.#listen(front, plan);
    if (exposed.length > 0) await this.#warnOfExposure(exposed);
    for (const plan of exposed) await this.#listen(front, plan);
  }

  /** Lets nobody in any more, at no listener, each as `Listener.rest` does. */
  async rest(limitMs: number): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#listeners.map((listener) => listener.rest(limitMs)));
  }

  /** Closes all listeners, each as `Listener.close` does. */
  async close(limitMs: number, options?: CloseOptions): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#listeners.map((listener) => listener.close(limitMs, options)));
  }

  /** Ends all listeners that were closed, each as `Listener.end` does. */
  async end(limitMs: number): Promise<void> {
    await Promise.all(this.#listeners.map((listener) => listener.end(limitMs)));
  }

  async #listen(front: Front, { spec, policy }: Plan): Promise<void> {
    if (!this.#closing.signal.aborted) this.#listeners.push(await front.listen(spec, policy));
  }

  #groupOfSockets(): number | undefined {
    try {
      return groupId(this.#config.group);
    } catch (error) {
      if (this.#config.groupNamed) throw error;
      this.#log.warn({ group: this.#config.group }, 'the group does not exist: only root can use the unix socket');
      return undefined;
    }
  }

  #listenSpec(address: SocketAddress, gid: number | undefined): ListenSpec {
    if (address.kind === 'tcp') return { ...address, ...this.#overTcp([address.host]) };
    return { kind: 'unix', path: address.path, ...(gid === undefined ? {} : { gid }) };
  }

  #activatedSpec({ fd, kind, address }: ActivationSocket): ListenSpec {
    return { kind: 'fd', fd, address, ...(kind === 'tcp' ? this.#overTcp([]) : {}) };
  }

  #overTcp(names: readonly string[]): { readonly tls?: TlsIdentity; readonly guard?: BrowserGuard } {
    return {
      ...(this.#tls && { tls: this.#tls }),
      // A page cannot show a certificate that the browser's user has not chosen for it.
      ...(this.#tls?.verifies
        ? {}
        : {
            guard: new BrowserGuard({
              names,
              allowsBrowsers: () => this.#live.current.features['allow-browsers'] === true,
            }),
          }),
    };
  }

  /** Tells whether other machines can use this address without a certificate. */
  #isExposed(spec: ListenSpec): boolean {
    if (spec.kind === 'unix' || this.#tls?.verifies) return false;
    if (spec.kind === 'tcp') return !isLoopbackHost(spec.host);
    const address = spec.address.startsWith('tcp:')
      ? new URL(spec.address.replace(/^tcp:/, 'http:')).hostname.replace(/^\[|\]$/g, '')
      : undefined;
    return address !== undefined && !isLoopbackHost(address);
  }

  async #warnOfExposure(exposed: readonly Plan[]): Promise<void> {
    const hosts = exposed.map(({ spec }) =>
      spec.kind === 'tcp' ? `${spec.host}:${spec.port}` : spec.kind === 'fd' ? spec.address : spec.path,
    );
    for (const host of hosts) {
      this.#warnings.push(
        `API is accessible on ${this.#tls ? 'https' : 'http'}://${host.replace(/^tcp:\/\//, '')} ` +
          `${this.#tls ? 'without TLS client verification' : 'without encryption'}. ${CONSEQUENCE}`,
      );
    }
    this.#log.warn({ hosts }, `Listening without --tlsverify: ${CONSEQUENCE}`);
    if (this.#config.tlsNamed) return;
    this.#log.warn(
      { hosts },
      'Make certificates and start with --tlsverify. ' +
        'If this is really meant, say so with --tls=false (or "tls": false in the configuration file)',
    );
    this.#log.warn(
      { hosts, seconds: EXPOSURE_PAUSE_MS / 1000 },
      'As neither was said, these addresses are served only after a pause',
    );
    await sleep(EXPOSURE_PAUSE_MS, undefined, { signal: this.#closing.signal }).catch(() => undefined);
  }
}

interface Plan {
  readonly spec: ListenSpec;
  readonly policy?: AccessPolicy;
}

type SocketAddress = Exclude<ListenAddress, { kind: 'fd' }>;

function scopedAddress(host: string, tls: boolean): SocketAddress {
  const address = parseHost(host, { tls });
  if (address.kind === 'fd') throw invalid(`host ${host}: must be unix:// or tcp://`);
  return address;
}

/**
 * Returns the sockets that `fd://` means. @throws EngineError invalid when the service manager passed no such socket.
 */
function chooseActivated(
  addresses: readonly ListenAddress[],
  sockets: readonly ActivationSocket[],
  log: Logger,
): readonly ActivationSocket[] {
  const selections = addresses.flatMap((address) => (address.kind === 'fd' ? [address.select] : []));
  if (selections.length === 0) {
    if (sockets.length > 0)
      log.warn(
        { sockets: sockets.map(({ address }) => address) },
        'sockets of the service manager are not served: that takes --host fd://',
      );
    return [];
  }
  try {
    return selectActivationSockets(sockets, selections);
  } catch (error) {
    if (!isEngineError(error)) throw error;
    throw new EngineError(error.kind, `failed to load listeners: ${error.message}`, { cause: error });
  }
}

function tlsIdentity(config: FixedConfig): TlsIdentity | undefined {
  return config.tls ? new TlsIdentity(tlsFiles(config)) : undefined;
}

function followReloads(live: LiveConfig, identity: TlsIdentity, log: Logger): void {
  const warn = (): void => {
    for (const warning of identity.warnings) log.warn({}, warning);
  };
  warn();
  live.alsoReload({
    reread: () => {
      const before = identity.summary;
      const { summary: after, apply } = identity.reread();
      return {
        entry: before === after ? undefined : { key: 'tlscert', verdict: 'applied', before, after },
        apply: () => {
          apply();
          warn();
        },
      };
    },
  });
}
