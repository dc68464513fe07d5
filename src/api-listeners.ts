/** Where the API listens: addresses, TLS and groups as the configuration has them. */
import { parseHost, type ListenAddress } from './config/hosts.js';
import type { Config } from './config/config.js';
import { parseAccessRule } from './config/scoped-sockets.js';
import type { LiveConfig } from './config/live-config.js';
import { EngineError, invalid, isEngineError } from './errors/engine-error.js';
import { accessPolicy } from './http/access-policy.js';
import type { Front } from './http/front.js';
import type { Listener, ListenSpec } from './http/listener.js';
import { TlsIdentity } from './http/tls/identity.js';
import type { Logger } from './ports/logger.js';
import type { ServiceManager } from './service-manager.js';
import { selectActivationSockets, type ActivationSocket } from './sys/activation.js';
import { groupId } from './sys/group.js';

const MIN_VERSIONS = { '1.0': 'TLSv1', '1.1': 'TLSv1.1', '1.2': 'TLSv1.2', '1.3': 'TLSv1.3' } as const;

export class ApiListeners {
  readonly #config: Config;
  readonly #log: Logger;
  readonly #tls: TlsIdentity | undefined;
  readonly #addresses: readonly SocketAddress[];
  readonly #activated: readonly ActivationSocket[];
  readonly #listeners: Listener[] = [];

  /** Opens nothing yet. @throws EngineError for addresses and TLS files that cannot be used. */
  constructor(live: LiveConfig, manager: ServiceManager, log: Logger) {
    const config = live.current;
    this.#config = config;
    this.#log = log;
    const addresses = config.hosts.map((host) => parseHost(host, { tls: config.tls }));
    this.#addresses = addresses.filter((address) => address.kind !== 'fd');
    this.#activated = chooseActivated(addresses, manager.sockets, log);
    this.#tls = tlsIdentity(config);
    if (this.#tls) followReloads(live, this.#tls, log);
  }

  get addresses(): readonly string[] {
    return this.#listeners.map(({ address }) => address);
  }

  /** @throws EngineError as `Front.listen`; not-found for a group that the operator named and the host lacks. */
  async open(front: Front): Promise<void> {
    const gid = await groupId(this.#config.group).catch((error: unknown) => {
      if (this.#config.groupNamed) throw error;
      this.#log.warn({ group: this.#config.group }, 'the group does not exist: only root can use the unix socket');
      return undefined;
    });
    // A group that is missing ends the start before anything is served.
    const scoped = await Promise.all(
      this.#config.sockets.map(async ({ host, group, allow }) => ({
        spec: this.#listenSpec(scopedAddress(host, this.#config.tls), group === '' ? undefined : await groupId(group)),
        policy: accessPolicy(allow.map(parseAccessRule)),
      })),
    );
    for (const { fd, kind, address } of this.#activated) {
      this.#listeners.push(await front.listen({ kind: 'fd', fd, address, ...(kind === 'tcp' && this.#tls ? { tls: this.#tls } : {}) }));
    }
    for (const address of this.#addresses) this.#listeners.push(await front.listen(this.#listenSpec(address, gid)));
    for (const { spec, policy } of scoped) this.#listeners.push(await front.listen(spec, policy));
  }

  /** As `Listener.close`, for all. */
  async close(limitMs: number): Promise<void> {
    await Promise.all(this.#listeners.map((listener) => listener.close(limitMs)));
  }

  #listenSpec(address: SocketAddress, gid: number | undefined): ListenSpec {
    if (address.kind === 'tcp') return { kind: 'tcp', host: address.host, port: address.port, ...(this.#tls && { tls: this.#tls }) };
    return { kind: 'unix', path: address.path, ...(gid === undefined ? {} : { gid }) };
  }
}

type SocketAddress = Exclude<ListenAddress, { kind: 'fd' }>;

function scopedAddress(host: string, tls: boolean): SocketAddress {
  const address = parseHost(host, { tls });
  if (address.kind === 'fd') throw invalid(`host ${host}: must be unix:// or tcp://`);
  return address;
}

/** @throws EngineError invalid when `fd://` is asked for and the service manager passed nothing that it could mean. */
function chooseActivated(addresses: readonly ListenAddress[], sockets: readonly ActivationSocket[], log: Logger): readonly ActivationSocket[] {
  const selections = addresses.flatMap((address) => (address.kind === 'fd' ? [address.select] : []));
  if (selections.length === 0) {
    if (sockets.length > 0) log.warn({ sockets: sockets.map(({ address }) => address) }, 'sockets of the service manager are not served: that takes --host fd://');
    return [];
  }
  try {
    return selectActivationSockets(sockets, selections);
  } catch (error) {
    if (!isEngineError(error)) throw error;
    throw new EngineError(error.kind, `failed to load listeners: ${error.message}`, { cause: error });
  }
}

function tlsIdentity({ tls, tlsVerify, tlsCaCert, tlsCert, tlsKey, tlsMinVersion }: Config): TlsIdentity | undefined {
  if (!tls) return undefined;
  return new TlsIdentity({ cert: tlsCert, key: tlsKey, ca: tlsVerify ? tlsCaCert : undefined, minVersion: MIN_VERSIONS[tlsMinVersion] });
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
