/**
 * Reads the configuration file of a running daemon again: either everything that may change changes, or nothing does.
 * Pure but for the reads.
 */
import { type EngineError, isEngineError } from '../errors/engine-error.js';
import { loadMerged } from './load.js';
import { noticesOf } from './notices.js';
import { OPTION_LIST, type NamedOption, type OptionName } from './options.js';
import { resolveConfig } from './resolve.js';
import type { LoadedConfig, Problem, Setting } from './settings.js';
import { showValue } from './show.js';
import { valuesOf } from './values.js';

/**
 * The fate of a key. `applied`: in effect now. `removed`: no longer in the file, back to its default now.
 * `needs-restart`: changed in the file, the running daemon keeps the old value. The others are reasons why nothing was
 * applied.
 */
export type ReloadVerdict = 'applied' | 'removed' | 'needs-restart' | 'unknown' | 'conflict' | 'invalid';

export interface ReloadEntry {
  readonly key: string;
  readonly verdict: ReloadVerdict;
  /** Values as messages show them, without secrets. */
  readonly before?: string;
  readonly after?: string;
  readonly message?: string;
}

export interface ReloadReport {
  /** False: the file cannot be used, and all of the old configuration is still in effect. */
  readonly ok: boolean;
  /** The reason why the file cannot be used; '' otherwise. */
  readonly message: string;
  readonly entries: readonly ReloadEntry[];
  /**
   * This configuration is in effect if the caller adopts it; it is the same object as before when nothing may change.
   */
  readonly loaded: LoadedConfig;
}

/** Reads the file again, with the command line and environment of the start. Never throws for what the file says. */
export async function reloadConfig(current: LoadedConfig): Promise<ReloadReport> {
  let next: LoadedConfig;
  try {
    next = await loadAgain(current);
  } catch (error) {
    if (!isEngineError(error)) throw error;
    return { ok: false, message: error.message, entries: problemsOf(error.details['problems']), loaded: current };
  }
  const settings = new Map<OptionName, Setting>();
  const entries: ReloadEntry[] = [];
  for (const option of OPTION_LIST) {
    const [before, after] = [current.settings.get(option.name), next.settings.get(option.name)];
    if (!before || !after) continue;
    const changed = JSON.stringify(before.value) !== JSON.stringify(after.value);
    settings.set(option.name, changed && !option.reloadable ? before : after);
    if (changed) entries.push(describeChange(option, before, after));
  }
  if (entries.every(({ verdict }) => verdict === 'needs-restart'))
    return { ok: true, message: '', entries, loaded: current };
  const { environment, host } = current;
  const { idleKeys } = next;
  const values = valuesOf(settings);
  const notices = noticesOf(values, settings, environment, idleKeys);
  const config = resolveConfig(values, settings, environment, host);
  return { ok: true, message: '', entries, loaded: { ...current, settings, config, notices, idleKeys } };
}

/**
 * Loads the file as the start does. A group may have to be looked up on the network, which must not hold up the daemon:
 * a load that comes to an unknown group only notes it, is thrown away, and is made again when the answer is there.
 */
async function loadAgain({ commandLine, environment, host }: LoadedConfig): Promise<LoadedConfig> {
  const answers = new Map<string, EngineError | undefined>();
  for (;;) {
    const asked = new Set<string>();
    const group = (name: string): void => {
      if (!answers.has(name)) asked.add(name);
      const error = answers.get(name);
      if (error) throw error;
    };
    const load = (): LoadedConfig =>
      loadMerged(commandLine, environment, { ...host, lookUp: { ...host.lookUp, group } });
    const loaded = settled(load);
    if (asked.size === 0) return loaded();
    for (const name of asked) answers.set(name, await failureOf(host.lookUp.groupLater(name)));
  }
}

/** Calls a function, and returns one that has the same outcome each time. */
function settled<T>(action: () => T): () => T {
  try {
    const value = action();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

async function failureOf(work: Promise<unknown>): Promise<EngineError | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    if (!isEngineError(error)) throw error;
    return error;
  }
}

function describeChange(option: NamedOption, before: Setting, after: Setting): ReloadEntry {
  const removed = before.source === 'file' && after.source !== 'file';
  return {
    key: option.title,
    verdict: !option.reloadable ? 'needs-restart' : removed ? 'removed' : 'applied',
    before: showValue(option, before.value),
    after: showValue(option, after.value),
  };
}

function problemsOf(problems: unknown): ReloadEntry[] {
  return Array.isArray(problems)
    ? (problems as Problem[]).map(({ key, kind, message }) => ({ key, verdict: kind, message }))
    : [];
}
