/** Contract of volume drivers that are processes of their own. */
import type { VolumePlace } from './volume-place.js';

/** A volume as its driver describes it. */
export interface PluginVolume {
  readonly name: string;
  /** Host directory; '' if the driver names none while the volume is not mounted. */
  readonly mountpoint: string;
  /** Time as the driver writes it; '' for unknown. */
  readonly createdAt: string;
  readonly status: Readonly<Record<string, unknown>> | undefined;
}

/** Every call throws EngineError unavailable, deadline or internal when the driver fails it. */
export interface VolumePlugin {
  readonly name: string;
  scope(): Promise<'local' | 'global'>;
  create(volume: string, options: Readonly<Record<string, string>>): Promise<void>;
  remove(volume: string): Promise<void>;
  get(volume: string): Promise<PluginVolume>;
  list(): Promise<PluginVolume[]>;
  /**
   * Mounts the volume. `use` tells the uses of one volume apart; each is mounted and unmounted once. Returns where its
   * files are.
   */
  mount(volume: string, use: string): Promise<VolumePlace>;
  unmount(volume: string, use: string): Promise<void>;
}

export interface VolumePlugins {
  /** Returns the name that a driver has itself: that of a managed plugin has a tag. @throws EngineError conflict. */
  nameOf(name: string): string;
  /** Finds and greets a driver. @throws EngineError not-found when there is none, others when it does not answer. */
  find(name: string): Promise<VolumePlugin>;
  /** Returns all drivers that answer. */
  installed(): Promise<VolumePlugin[]>;
  /** Names of the drivers that have answered so far. */
  readonly known: readonly string[];
}
