/** Where the API listens: addresses, TLS and groups as the configuration has them. */
import { parseHost, type ListenAddress } from './config/hosts.js';
import type { Config } from './config/config.js';
import { parseAccessRule } from './config/scoped-sockets.js';
import type { LiveConfig } from './config/live-config.js';
import { invalid } from './errors/engine-error.js';
import { accessPolicy } from './http/access-policy.js';
import type { Front } from './http/front.js';
import type { Listener, ListenSpec } from './http/listener.js';
import { TlsIdentity } from './http/tls/identity.js';
import type { Logger } from './ports/logger.js';
import { groupId } from './sys/group.js';

const MIN_VERSIONS = { '1.0': 'TLSv1', '1.1': 'TLSv1.1', '1.2': 'TLSv1.2', '1.3': 'TLSv1.3' } as const;

export class ApiListeners {
  readonly #config: Config;
  readonly #log: Logger;
  readonly #tls: TlsIdentity | undefined;
  readonly #addresses: readonly SocketAddress[];
  readonly #listeners: Listener[] = [];

  /** Opens nothing yet. @throws EngineError for addresses and TLS files that cannot be used. */
  constructor(live: LiveConfig, log: Logger) {
    const config = live.current;
    this.#config = config;
    this.#log = log;
    this.#addresses = config.hosts.map((host) => listenAddress(host, config.tls));
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
        spec: this.#listenSpec(listenAddress(host, this.#config.tls), group === '' ? undefined : await groupId(group)),
        policy: accessPolicy(allow.map(parseAccessRule)),
      })),
    );
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

function listenAddress(host: string, tls: boolean): SocketAddress {
  const address = parseHost(host, { tls });
  if (address.kind === 'fd') throw invalid(`host ${host}: the daemon was not started by socket activation, so there is no socket to take over`);
  return address;
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
