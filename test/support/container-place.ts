/** Where a container is: asked by a request, because a start of the CLI costs more than the answer. */
import type { Engine } from './engine.js';
import { callJson } from './http.js';

export interface Place {
  /** The path of its network namespace. */
  readonly netns: string;
  /** Its addresses on its first network; '' where it has none. */
  readonly address: Readonly<Record<4 | 6, string>>;
}

interface Inspected {
  readonly NetworkSettings: {
    readonly SandboxKey: string;
    readonly Networks: Readonly<Record<string, { readonly IPAddress: string; readonly GlobalIPv6Address: string }>>;
  };
}

export async function placeOf(engine: Engine, name: string): Promise<Place> {
  const { NetworkSettings } = await callJson<Inspected>(engine.socketPath, 'GET', `/containers/${name}/json`);
  const [first] = Object.values(NetworkSettings.Networks);
  const address = { 4: first?.IPAddress ?? '', 6: first?.GlobalIPv6Address ?? '' };
  return { netns: NetworkSettings.SandboxKey, address };
}
