/** Operations of the Engine API that write to registries or ask them. */
import type { Pushes } from '../../actors/push/pushes.js';
import { invalid, messageOf } from '../../errors/engine-error.js';
import { isTag, parseReference } from '../../images/reference.js';
import type { FileImageStore } from '../../images/store.js';
import { credentialsOf, type Credentials, decodeCredentials } from '../../registry/credentials.js';
import { requirePlatform } from '../../images/platform.js';
import { platformObject } from '../api/platform.js';
import type { Exchange } from '../exchange.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';

export interface RegistryRouteDeps {
  readonly images: FileImageStore;
  readonly pushes: Pick<Pushes, 'push'>;
}

export function registryRoutes({ images, pushes }: RegistryRouteDeps): Route[] {
  return [
    route('POST', '/images/{name...}/push', async (x) => {
      const credentials = await pushCredentials(x);
      const written = parseReference(x.param('name'));
      const tag = x.query.text('tag');
      if (tag !== '' && !isTag(tag)) throw invalid('invalid tag format', { code: 'INVALID_REFERENCE' });
      const reference = tag === '' ? written : { domain: written.domain, path: written.path, tag };
      const platform = x.atLeast(1, 46) ? x.query.text('platform') : '';
      if (platform !== '') requirePlatform(images.resolve(x.param('name') + (tag === '' ? '' : `:${tag}`)), platformObject(platform), x.param('name'));
      await pump(await pushes.push({ reference, credentials }, x.signal), x.stream(200, { 'Content-Type': 'application/json' }));
    }),
  ];
}

/** From the header, which may say nothing; without it the body has to. */
async function pushCredentials(x: Exchange): Promise<Credentials | undefined> {
  const header = x.header('x-registry-auth');
  if (header !== undefined && header !== '') return decodeCredentials(header);
  try {
    return credentialsOf(await x.json<unknown>());
  } catch (error) {
    throw invalid(`bad parameters and missing X-Registry-Auth: ${messageOf(error)}`, { code: 'MISSING_CREDENTIALS', cause: error });
  }
}
