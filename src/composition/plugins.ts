/** Makes managed plugins: their store, their processes, the actors behind them. */
import { join } from 'node:path';
import { isRunning } from '../actors/container/container.record.js';
import { PluginMaker } from '../actors/plugin/plugin-maker.js';
import { PluginProcesses } from '../actors/plugin/plugin-processes.js';
import { localName, Plugins } from '../actors/plugin/plugins.js';
import type { PluginRecord } from '../ports/managed-plugin.js';
import type { TaskService } from '../ports/supervisor.js';
import { type LoadedPlugins, PluginStore } from '../plugins/managed/plugin-store.js';
import { cgroupsPathFor } from '../runtime/cgroup-path.js';
import { buildPluginSpec } from '../runtime/plugin-process.js';
import { PRODUCT_VERSION } from '../version.js';
import type { Base } from './base.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import type { Transfers } from './transfers.js';

export interface PluginParts {
  readonly plugins: Plugins;
  readonly maker: PluginMaker;
  /** Reads the installed plugins, and starts those that are enabled or takes over their processes. */
  load(): Promise<LoadedPlugins>;
}

export function composePlugins(
  base: Base,
  drivers: Drivers,
  lives: Containers,
  { pulls }: Pick<Transfers, 'pulls'>,
): PluginParts {
  const { dataRoot, log, replies } = base;
  const { pool, archives, emit, managedPlugins } = drivers;
  const store = new PluginStore(join(dataRoot, 'plugins'), pool);
  const tasks = new LateTasks(drivers.pluginSupervisor);
  const announce = (action: string, id: string, attributes: Readonly<Record<string, string>>): void =>
    emit('plugin', action, id, attributes);
  const plugins = new Plugins({
    log,
    replies,
    store,
    processes: composeProcesses(base, drivers, store, tasks),
    users: (record) => [
      ...usersOf(record, drivers, lives),
      // Without its answers, which somebody would have to change in the configuration, every request is denied.
      ...base.live.current.authorizationPlugins.filter((id) => localName(id) === record.name),
    ],
    emit: announce,
  });
  drivers.pluginSupervisor.tasks.onEvent((event) => {
    if (event.type === 'exit' && event.execId === '') plugins.exited(event.id, event.exit);
  });
  managedPlugins.connect(plugins);
  const maker = new PluginMaker({
    plugins,
    store,
    archives,
    pool,
    sessions: pulls.sessions,
    version: PRODUCT_VERSION,
    emit: announce,
  });
  const load = async (): Promise<LoadedPlugins> => {
    const loaded = await store.load();
    for (const record of loaded.records) plugins.add(record);
    return loaded;
  };
  return { plugins, maker, load };
}

function composeProcesses(
  { facts, settings, execRoot, live, log }: Base,
  { stdio }: Drivers,
  store: PluginStore,
  tasks: LateTasks,
): PluginProcesses {
  const driver = settings.runtimeChoice('runc').systemdCgroup === true ? 'systemd' : settings.cgroupDriver;
  const { cgroupParent: parent } = live.fixed;
  const { version, own: ownCgroup } = facts.cgroup;
  return new PluginProcesses({
    log,
    stdio,
    tasks: () => tasks.ready(),
    files: (record) => store.files(record),
    runRoot: join(execRoot, 'plugins'),
    runtime: () => settings.runtimeChoice('runc'),
    buildSpec: (record, places) =>
      buildPluginSpec(
        { record, ...places, cgroupsPath: cgroupsPathFor({ driver, parent, id: record.id, version, ownCgroup }) },
        facts,
      ),
  });
}

/** The supervisor's namespace of plugins, which is entered when the first plugin needs it. */
class LateTasks {
  #started: Promise<void> | undefined;

  constructor(private readonly supervisor: Drivers['pluginSupervisor']) {}

  async ready(): Promise<TaskService> {
    this.#started ??= this.supervisor.start().catch((error: unknown) => {
      this.#started = undefined;
      throw error;
    });
    await this.#started;
    return this.supervisor.tasks;
  }
}

/** Returns what uses a plugin: volumes, networks, and containers that log to it. */
function usersOf({ name }: PluginRecord, { volumes, network }: Drivers, { containers }: Containers): string[] {
  return [
    ...volumes.list().flatMap((volume) => (volume.driver === name ? [`volume ${volume.name}`] : [])),
    ...network
      .list()
      .flatMap(({ id, driver, ipam }) =>
        [driver, ipam.driver].some((one) => localName(one) === name) ? [`network ${id}`] : [],
      ),
    ...containers
      .list()
      .flatMap((container) =>
        isRunning(container) && localName(container.hostConfig.LogConfig.Type) === name
          ? [`container ${container.id}`]
          : [],
      ),
  ];
}
