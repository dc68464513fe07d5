/** The way from the users of plugins to the managed ones, which are made later: they need what some users have. */
import type { ManagedPlugins, RunningPlugin } from '../../ports/managed-plugin.js';

export class ManagedLookup implements ManagedPlugins {
  #source: ManagedPlugins | undefined;

  /** Tells who knows the managed plugins; called once, before anybody asks. */
  connect(source: ManagedPlugins): void {
    this.#source = source;
  }

  find(name: string): RunningPlugin | undefined {
    return this.#source?.find(name);
  }

  names(): readonly string[] {
    return this.#source?.names() ?? [];
  }
}
