/** A registry with one small image, which most tests need. */
import { buildImage, buildLayer, busyboxEntries, pushImage, type BuiltImage } from './image-builder.js';
import { startRegistry, type TestRegistry } from './registry.js';

export interface SeededRegistry extends TestRegistry {
  /** `127.0.0.1:port/test/busybox:1.0`: two layers, Cmd `sh`. */
  readonly reference: string;
  readonly image: BuiltImage;
}

export async function startSeededRegistry(): Promise<SeededRegistry> {
  const registry = await startRegistry();
  const image = buildImage({
    layers: [
      buildLayer(busyboxEntries()),
      buildLayer([{ path: 'etc/motd', content: 'hello from the second layer\n' }]),
    ],
    config: { Labels: { flavour: 'plain' } },
  });
  await pushImage(registry.url, 'test/busybox', '1.0', image);
  return { ...registry, reference: `${registry.host}/test/busybox:1.0`, image };
}
