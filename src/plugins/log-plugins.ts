/** Log drivers over the plugin protocol. They are managed plugins, because they share a directory with the daemon. */
import { notFound } from '../errors/engine-error.js';
import type { LogInfo, LogPlugin, LogPlugins, LogQuery } from '../ports/log-plugin.js';
import type { RunningPlugin } from '../ports/managed-plugin.js';
import { memberOf, PLUGIN_LIMITS } from './plugin-client.js';
import { Plugin, type PluginOptions } from './plugin.js';

/** The plugin sees its directory of FIFOs here. */
const SEEN_AT = '/run/docker/logging';
/** Starting may have to wait for a server that the driver uses. */
const LIMITS = { ...PLUGIN_LIMITS, callMs: 30_000 };

export class ProtocolLogPlugins implements LogPlugins {
  readonly #plugins = new Map<string, ProtocolLogPlugin>();

  constructor(private readonly options: PluginOptions) {}

  find(name: string): LogPlugin | undefined {
    const managed = this.options.places?.managed?.find(name);
    if (managed === undefined || !isLogDriver(managed)) return undefined;
    const known = this.#plugins.get(managed.name);
    if (known?.directory === managed.loggingDir) return known;
    known?.close();
    const plugin = new ProtocolLogPlugin(new Plugin(managed.name, 'LogDriver', this.options), managed.loggingDir);
    this.#plugins.set(managed.name, plugin);
    return plugin;
  }

  names(): readonly string[] {
    const { managed } = this.options.places ?? {};
    return (managed?.names() ?? []).filter((name) => {
      const plugin = managed?.find(name);
      return plugin !== undefined && isLogDriver(plugin);
    });
  }

  close(): void {
    for (const plugin of this.#plugins.values()) plugin.close();
    this.#plugins.clear();
  }
}

class ProtocolLogPlugin implements LogPlugin {
  constructor(
    private readonly plugin: Plugin,
    readonly directory: string,
  ) {}

  requireEnabled(): void {
    if (this.plugin.managed === undefined)
      throw notFound(`plugin ${JSON.stringify(this.plugin.id)} not found`, { code: 'PLUGIN' });
  }

  async startLogging(fifo: string, info: LogInfo): Promise<void> {
    await this.plugin.ask('LogDriver.StartLogging', { File: `${SEEN_AT}/${fifo}`, Info: info }, LIMITS);
  }

  async stopLogging(fifo: string): Promise<void> {
    await this.plugin.ask('LogDriver.StopLogging', { File: `${SEEN_AT}/${fifo}` }, LIMITS);
  }

  async canRead(): Promise<boolean> {
    try {
      const answer = await this.plugin.call('LogDriver.Capabilities', {});
      return memberOf(memberOf(answer, 'cap'), 'readlogs') === true;
    } catch {
      // Older drivers do not know the question.
      return false;
    }
  }

  readLogs(info: LogInfo, wanted: LogQuery, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    return this.plugin.stream('LogDriver.ReadLogs', { Info: info, Config: wanted }, signal);
  }

  close(): void {
    this.plugin.close();
  }
}

function isLogDriver({ types }: RunningPlugin): boolean {
  return types.some(({ prefix, capability }) => prefix === 'docker' && capability.toLowerCase() === 'logdriver');
}
