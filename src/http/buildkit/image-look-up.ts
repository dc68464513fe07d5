/** Looks up what checks of a Dockerfile want to know of its base images. */
import type { ImageConfigs } from '../../actors/build/image-configs.js';
import { factsOfImage, type LookUpImage } from '../../build/dockerfile/check-images.js';
import { internal, messageOf } from '../../errors/engine-error.js';
import { inStep, loginOf, type OrderedBuild } from './ordered-build.js';

const IMAGE_CONTEXT = 'docker-image://';

export function imageLookUp(build: OrderedBuild, configs: Pick<ImageConfigs, 'find'>): LookUpImage {
  const { attrs, job } = build;
  return async (source, platform) => {
    const context = source.kind === 'context' ? (attrs.namedContexts.get(source.name) ?? '') : '';
    if (source.kind === 'context' && !context.startsWith(IMAGE_CONTEXT)) return undefined;
    const name = source.kind === 'context' ? context.slice(IMAGE_CONTEXT.length) : source.name;
    const written = source.kind === 'context' ? name : source.written;
    const question = { name, platform, pull: attrs.pull, credentials: (host: string) => loginOf(build, host) };
    try {
      const found = await inStep(build, `[internal] load metadata for ${name}`, '', () =>
        configs.find(question, job.signal),
      );
      return factsOfImage(JSON.parse(found.config.toString()) as object);
    } catch (error) {
      throw internal(`${written}: failed to resolve source metadata for ${name}: ${messageOf(error)}`);
    }
  };
}
