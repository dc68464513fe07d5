/** The managed plugins as the rest of the daemon sees them: views by name, commands to the actors behind them. */
import { conflict, type EngineError, internal, invalid, notFound } from '../../errors/engine-error.js';
import { familiarString, type ImageReference, parseReference, withDefaultTag } from '../../images/reference.js';
import type { Logger } from '../../ports/logger.js';
import type {
  ManagedPlugins,
  PluginConfig,
  PluginRecord,
  PluginSettings,
  RunningPlugin,
} from '../../ports/managed-plugin.js';
import type { ExitStatus } from '../../ports/supervisor.js';
import type { PluginStore } from '../../plugins/managed/plugin-store.js';
import { changesOf, changeSettings, initialSettings } from '../../plugins/managed/settings.js';
import { KeyedLock } from '../../storage/keyed-lock.js';
import type { Collection, CollectionEvent } from '../kit/collection.js';
import { ActorDirectory } from '../kit/directory.js';
import type { Replies } from '../kit/replies.js';
import { createPluginMachine, type PluginEffects } from './plugin.machine.js';
import type { PluginCommand, PluginReplacement } from './plugin.messages.js';
import type { PluginProcesses } from './plugin-processes.js';
import { placeInPlugin } from './plugin-place.js';

type PluginMachine = ReturnType<typeof createPluginMachine>;

export interface PluginsDeps {
  readonly log: Logger;
  readonly replies: Replies;
  readonly store: PluginStore;
  readonly processes: PluginProcesses;
  /** Returns who uses a plugin; nobody else may be told that it is in use. */
  readonly users: (record: PluginRecord) => readonly string[];
  readonly emit: (action: string, id: string, attributes: Readonly<Record<string, string>>) => void;
}

interface View {
  readonly record: PluginRecord;
  readonly isRunning: boolean;
}

const FULL_ID = /^[0-9a-f]{64}$/;

export class Plugins implements ManagedPlugins {
  readonly #views = new Map<string, View>();
  readonly #actors: ActorDirectory<PluginMachine, PluginCommand>;
  /** Commands to one plugin come one after the other, and so do those that want one name. */
  readonly #lock = new KeyedLock();

  constructor(private readonly deps: PluginsDeps) {
    const machine = createPluginMachine(
      this.#effects(),
      {
        publish: (record, isRunning) => this.#views.set(record.id, { record, isRunning }),
        refusal: (record, command) => this.#refusal(record, command),
        failed: (record, reason, againMs) =>
          deps.log.error(
            { plugin: record.name, ...(reason instanceof Error ? { err: reason } : { exit: reason }) },
            `plugin does not run; it is started again in ${againMs / 1000} seconds`,
          ),
      },
      deps.replies,
    );
    this.#actors = new ActorDirectory({
      kind: 'plugin',
      logic: machine,
      replies: deps.replies,
      missing: noSuchPlugin,
      revive: (id) => this.#views.get(id)?.record,
      onCrash: (id, error, revived) => deps.log.error({ err: error, plugin: id, revived }, 'plugin actor crashed'),
      onDone: (id) => this.#views.delete(id),
    });
  }

  get collection(): Collection<PluginMachine> {
    return this.#actors.collection;
  }

  /** This must be called when the root actor runs: `send` takes spawn events to it. */
  connect(send: (event: CollectionEvent<PluginMachine>) => void): void {
    this.#actors.connect(send);
  }

  /** Takes up a plugin: one that is enabled is started, or its process taken over. */
  add(record: PluginRecord): void {
    this.#views.set(record.id, { record, isRunning: false });
    this.#actors.spawn(record.id, record);
  }

  /** Returns all plugins, ordered by name. */
  list(): PluginRecord[] {
    return [...this.#views.values()].map(({ record }) => record).toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Finds a plugin by its ID, its name or the beginning of its ID. @throws EngineError not-found, invalid. */
  get(reference: string): PluginRecord {
    return this.#view(reference).record;
  }

  find(name: string): RunningPlugin | undefined {
    const view = this.#named(name);
    if (view === undefined) return undefined;
    const { record } = view;
    if (!record.enabled) throw conflict(`plugin ${name} found but disabled`, { code: 'PLUGIN_DISABLED' });
    return {
      name: record.name,
      socket: this.deps.processes.socketOf(record),
      types: record.config.Interface.Types,
      timeoutMs: record.timeoutSeconds * 1000,
      place: (path) => placeInPlugin(record, this.deps.store.files(record), path),
      loggingDir: this.deps.processes.loggingDir(record.id),
    };
  }

  names(): readonly string[] {
    return this.list().flatMap(({ name, enabled }) => (enabled ? [name] : []));
  }

  /** Resolves when the plugin listens. @throws EngineError with what keeps it from that. */
  async enable(reference: string, timeoutSeconds: number): Promise<void> {
    const { id } = await this.#ask(reference, 'plugin.enable', { timeoutSeconds });
    this.deps.emit('enable', id, { name: reference });
  }

  async disable(reference: string, force: boolean): Promise<void> {
    const { id } = await this.#ask(reference, 'plugin.disable', { force });
    this.deps.emit('disable', id, { name: reference });
  }

  async set(reference: string, words: readonly string[]): Promise<void> {
    await this.#ask(reference, 'plugin.set', { words });
  }

  async upgrade(reference: string, replacement: PluginReplacement): Promise<void> {
    await this.#ask(reference, 'plugin.upgrade', { replacement });
  }

  /** Returns the plugin as it was. */
  async remove(reference: string, force: boolean): Promise<PluginRecord> {
    const record = await this.#ask(reference, 'plugin.remove', { force });
    this.deps.emit('remove', record.id, { name: reference });
    return record;
  }

  /** Installs what `make` publishes under a name, unless there is one of this name. @throws EngineError conflict. */
  install(name: string, make: () => Promise<PluginRecord>): Promise<PluginRecord> {
    return this.#lock.run(`name ${name}`, async () => {
      this.requireFree(name);
      const record = await make();
      this.add(record);
      return record;
    });
  }

  /** @throws EngineError conflict `plugin X already exists`. */
  requireFree(name: string): void {
    if (this.#named(name)) throw conflict(`plugin ${name} already exists`, { code: 'PLUGIN_NAME' });
  }

  exited(id: string, exit: ExitStatus): void {
    this.deps.processes.exited(id, exit);
    this.#actors.tell(id, { type: 'plugin.exited', exit });
  }

  /** Tells whether a process of a plugin goes on when the daemon ends without stopping it. */
  get isAnyRunning(): boolean {
    return [...this.#views.values()].some(({ isRunning }) => isRunning);
  }

  /** Stops all processes; the plugins stay enabled for the next start. */
  async rest(): Promise<void> {
    const enabled = this.list().filter((record) => record.enabled);
    const results = await Promise.allSettled(enabled.map(({ id }) => this.#ask(id, 'plugin.rest', {})));
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Nobody who asks is left behind: a client that goes away does not cut a command off. */
  #ask<T extends PluginCommand['type']>(
    reference: string,
    type: T,
    fields: Omit<Extract<PluginCommand, { type: T }>, 'type' | 'req' | symbol>,
  ): Promise<PluginRecord> {
    const { id } = this.get(reference);
    return this.#lock.run(id, () => {
      if (!this.#views.has(id)) throw noSuchPlugin(reference);
      return this.#actors.ask(id, type, fields as never) as Promise<PluginRecord>;
    });
  }

  #named(name: string): View | undefined {
    const wanted = localName(name);
    return wanted === undefined ? undefined : [...this.#views.values()].find(({ record }) => record.name === wanted);
  }

  #view(reference: string): View {
    const whole = FULL_ID.test(reference) ? this.#views.get(reference) : this.#named(reference);
    if (whole) return whole;
    const isPrefix = /^[0-9a-f]+$/.test(reference);
    const found = isPrefix ? [...this.#views].filter(([id]) => id.startsWith(reference)) : [];
    if (found.length > 1)
      throw invalid(`multiple plugins found for ${JSON.stringify(reference)}`, { code: 'PLUGIN_AMBIGUOUS' });
    const view = found[0]?.[1];
    if (!view) throw noSuchPlugin(reference);
    return view;
  }

  #refusal(record: PluginRecord, command: PluginCommand): EngineError | undefined {
    const { name, enabled } = record;
    const isEnabled = `plugin ${name} is enabled`;
    switch (command.type) {
      case 'plugin.enable':
        return enabled ? conflict(`plugin already enabled: ${isEnabled}`, { code: 'PLUGIN_ENABLED' }) : undefined;
      case 'plugin.disable':
        if (!enabled)
          return conflict(`plugin is already disabled: plugin ${name} found but disabled`, { code: 'PLUGIN_DISABLED' });
        return command.force ? undefined : this.#useOf(record);
      case 'plugin.set':
        return internal('cannot set on an active plugin, disable plugin before setting', { code: 'PLUGIN_ENABLED' });
      case 'plugin.upgrade':
        return conflict(`plugin must be disabled before upgrading: ${isEnabled}`, { code: 'PLUGIN_ENABLED' });
      case 'plugin.remove':
        if (command.force) return undefined;
        return this.#useOf(record) ?? (enabled ? conflict(isEnabled, { code: 'PLUGIN_ENABLED' }) : undefined);
      default:
        return undefined;
    }
  }

  #useOf(record: PluginRecord): EngineError | undefined {
    return this.deps.users(record).length > 0
      ? conflict(`plugin ${record.name} is in use`, { code: 'PLUGIN_IN_USE' })
      : undefined;
  }

  #effects(): PluginEffects {
    const { store, processes } = this.deps;
    return {
      start: (record, signal, pace) => processes.start(record, signal, pace),
      restore: async (record, signal, pace) => {
        if (!(await pace.unlimited(processes.adopt(record, signal)))) await processes.start(record, signal, pace);
      },
      stop: (record, pace) => pace.unlimited(processes.stop(record)),
      save: (record) => store.save(record),
      change: (record, command, pace) => pace.unlimited(this.#change(record, command)),
    };
  }

  async #change(
    record: PluginRecord,
    command: Parameters<PluginEffects['change']>[1],
  ): Promise<PluginRecord | undefined> {
    const { store } = this.deps;
    if (command.type === 'plugin.set') {
      const settings = changeSettings(record.config, record.settings, command.words);
      await store.save({ ...record, settings });
      return { ...record, settings };
    }
    if (command.type === 'plugin.upgrade') {
      const { staged, made } = command.replacement;
      return store.replace(staged, record, { ...made, settings: carriedSettings(record, made.config) });
    }
    await store.remove(record.id);
    return undefined;
  }
}

/** Returns the settings of a new configuration, with the operator's changes of the old one that it still takes. */
function carriedSettings({ config, settings }: PluginRecord, next: PluginConfig): PluginSettings {
  let carried = initialSettings(next);
  for (const word of changesOf(config, settings)) {
    try {
      carried = changeSettings(next, carried, [word]);
    } catch {
      // The new configuration has no such setting any more.
    }
  }
  return carried;
}

/** Returns the name that a plugin of this reference has here; undefined for what can be no name. */
export function localName(text: string): string | undefined {
  try {
    const reference = parseReference(text);
    return reference.digest === undefined ? familiarString(withDefaultTag(reference)) : undefined;
  } catch {
    return undefined;
  }
}

/** @throws EngineError invalid for what can be no name, or is a digest. */
export function newPluginName(text: string): { readonly reference: ImageReference; readonly name: string } {
  const reference = parseReference(text);
  if (reference.digest !== undefined)
    throw invalid('canonical references are not permitted', { code: 'INVALID_REFERENCE' });
  const tagged = withDefaultTag(reference);
  return { reference: tagged, name: familiarString(tagged) };
}

function noSuchPlugin(reference: string): EngineError {
  return notFound(`plugin ${JSON.stringify(reference)} not found`, { code: 'NO_SUCH_PLUGIN' });
}
