/** A plugin in another process: it is found, greeted once, and called. */
import { internal, isEngineError, messageOf, notImplemented } from '../errors/engine-error.js';
import type { RunningPlugin } from '../ports/managed-plugin.js';
import { findPlugin, type PluginPlaces } from './discovery.js';
import { memberOf, PluginClient, PLUGIN_LIMITS, type PluginLimits } from './plugin-client.js';
import { PLUGIN_REFUSED } from '../ports/plugin.js';

/** The kinds of plugins, as they call themselves in their manifests. */
export type PluginCapability = 'authz' | 'VolumeDriver' | 'NetworkDriver' | 'IpamDriver' | 'LogDriver';

export interface PluginOptions {
  readonly places?: PluginPlaces;
  readonly limits?: PluginLimits;
}

export class Plugin {
  /** The name or path as the operator wrote it. */
  readonly id: string;
  readonly #capability: PluginCapability;
  readonly #options: PluginOptions;
  /** The greeting; undefined until the first call, and after a greeting that failed. */
  #ready: Promise<PluginClient> | undefined;
  /** The socket of the managed plugin that was greeted; undefined for one of the operator's. */
  #socket: string | undefined;

  constructor(id: string, capability: PluginCapability, options: PluginOptions = {}) {
    this.id = id;
    this.#capability = capability;
    this.#options = options;
  }

  /**
   * Finds and greets the plugin if that has not been done. After a failure the next call tries again.
   * @throws EngineError not-found, invalid as `findPlugin`; those of `PluginClient.call`; not-implemented when the
   * plugin is of another kind.
   */
  async activate(): Promise<void> {
    await this.#client();
  }

  /** The managed plugin of this name, if there is one. @throws EngineError conflict for one that is disabled. */
  get managed(): RunningPlugin | undefined {
    return this.#options.places?.managed?.find(this.id);
  }

  /** Calls a method of the plugin. @throws as `activate`, `managed` and `PluginClient.call`. */
  async call(method: string, argument: unknown, limits?: PluginLimits): Promise<unknown> {
    const timeoutMs = this.managed?.timeoutMs ?? 0;
    const client = await this.#client();
    try {
      const wanted = limits ?? this.#options.limits ?? PLUGIN_LIMITS;
      return await client.call(method, argument, timeoutMs > 0 ? { ...wanted, callMs: timeoutMs } : limits);
    } catch (error) {
      // Another plugin may listen there next, or this one elsewhere: so it is looked for and greeted again.
      if (isEngineError(error, 'unavailable')) this.close();
      throw error;
    }
  }

  /** Calls a method whose answer is a stream. @throws as `activate`, `managed` and `PluginClient.stream`. */
  async stream(method: string, argument: unknown, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const client = await this.#client();
    try {
      return await client.stream(method, argument, signal);
    } catch (error) {
      if (isEngineError(error, 'unavailable')) this.close();
      throw error;
    }
  }

  /**
   * Calls as `call` does, for methods that report failures in a member `Err`. @throws also EngineError internal with
   * that text.
   */
  async ask(method: string, argument: unknown, limits?: PluginLimits): Promise<unknown> {
    const answer = await this.call(method, argument, limits);
    const failure = memberOf(answer, 'err');
    if (typeof failure === 'string' && failure !== '') throw internal(failure, { code: PLUGIN_REFUSED });
    return answer;
  }

  /** Ends idle connections; a later call makes new ones. */
  close(): void {
    const ready = this.#ready;
    this.#ready = undefined;
    // A greeting that failed has no connection.
    ready?.then((client) => client.close()).catch(() => undefined);
  }

  #client(): Promise<PluginClient> {
    const socket = this.managed?.socket;
    // Another plugin has the name by now.
    if (socket !== this.#socket) this.close();
    this.#socket = socket;
    if (this.#ready !== undefined) return this.#ready;
    const ready = this.#greet();
    this.#ready = ready;
    ready.catch(() => {
      if (this.#ready === ready) this.#ready = undefined;
    });
    return ready;
  }

  async #greet(): Promise<PluginClient> {
    const { managed } = this;
    if (managed) {
      requireType(managed, this.#capability);
      return new PluginClient({ kind: 'unix', path: managed.socket, isPinned: true }, this.#options.limits);
    }
    const { address } = await findPlugin(this.id, this.#options.places);
    const client = new PluginClient(address, this.#options.limits);
    try {
      const manifest = await client.call('Plugin.Activate');
      const kinds = implementedBy(manifest);
      if (!kinds.includes(this.#capability))
        throw notImplemented(
          `plugin ${JSON.stringify(this.id)} does not implement ${this.#capability}, ` +
            `only ${kinds.join(', ') || 'nothing'}`,
          { code: 'PLUGIN' },
        );
    } catch (error) {
      client.close();
      throw isEngineError(error)
        ? error
        : internal(`plugin ${JSON.stringify(this.id)}: ${messageOf(error)}`, { cause: error });
    }
    return client;
  }
}

/** The configuration of a managed plugin says what it is, so that it need not be greeted. */
function requireType({ types }: RunningPlugin, wanted: PluginCapability): void {
  const capability = wanted.toLowerCase();
  if (types.some((type) => type.prefix === 'docker' && type.capability.toLowerCase() === capability)) return;
  throw notImplemented(`plugin does not provide "${capability}" capability`, { code: 'PLUGIN' });
}

function implementedBy(manifest: unknown): readonly string[] {
  const kinds = memberOf(manifest, 'implements');
  if (!Array.isArray(kinds)) throw internal('Plugin.Activate: the answer has no list "Implements"', { code: 'PLUGIN' });
  return kinds.filter((kind) => typeof kind === 'string');
}
