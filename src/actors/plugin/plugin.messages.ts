/** Everything that can be said to the actor of a managed plugin. */
import type { ExitStatus } from '../../ports/supervisor.js';
import type { PluginRecord } from '../../ports/managed-plugin.js';
import type { StagedPlugin } from '../../plugins/managed/plugin-store.js';
import type { Command, RequestCancelled } from '../kit/commands.js';
import type { EffectHung } from '../kit/effect.js';

/** A plugin becomes this by an upgrade. */
export interface PluginReplacement {
  readonly staged: StagedPlugin;
  readonly made: Pick<PluginRecord, 'config' | 'reference'>;
}

export type PluginCommand =
  /** This is answered when the plugin listens. A call to it may take `timeoutSeconds`. */
  | (Command<'plugin.enable', PluginRecord> & { readonly timeoutSeconds: number })
  /** This is answered when the process is gone. */
  | (Command<'plugin.disable', PluginRecord> & { readonly force: boolean })
  | (Command<'plugin.set', PluginRecord> & { readonly words: readonly string[] })
  | (Command<'plugin.upgrade', PluginRecord> & { readonly replacement: PluginReplacement })
  | (Command<'plugin.remove', PluginRecord> & { readonly force: boolean })
  /** The daemon ends: the process is stopped, and the plugin stays enabled. */
  | Command<'plugin.rest', PluginRecord>;

export type PluginFact = { readonly type: 'plugin.exited'; readonly exit: ExitStatus };

export type PluginEvent = PluginCommand | PluginFact | EffectHung | RequestCancelled;
