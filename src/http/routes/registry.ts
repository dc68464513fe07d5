/** Operations of the Engine API that write to registries or ask them. */
import type { RegistryQueries } from '../../actors/registry-session/queries.js';
import type { Pushes } from '../../actors/push/pushes.js';
import { invalid, messageOf } from '../../errors/engine-error.js';
import { isDigest, isTag, parseReference, withDefaultTag } from '../../images/reference.js';
import { requirePlatform } from '../../images/platform.js';
import type { FileImageStore } from '../../images/store.js';
import { credentialsOf, type Credentials, decodeCredentials } from '../../registry/credentials.js';
import { parseFilters } from '../api/filters.js';
import { platformObject } from '../api/platform.js';
import { decodeLogin, decodeSearch, remoteJson, searchJson } from '../api/registry.js';
import type { Exchange } from '../exchange.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';

export interface RegistryRouteDeps {
  readonly images: FileImageStore;
  readonly pushes: Pick<Pushes, 'push'>;
  readonly queries: RegistryQueries;
}

export function registryRoutes({ images, pushes, queries }: RegistryRouteDeps): Route[] {
  return [
    route(
      'POST',
      '/auth',
      async (x) => {
        const { address, credentials } = decodeLogin(await x.json<unknown>());
        const identityToken = await queries.login(address, credentials, x.signal);
        x.sendJson(200, { IdentityToken: identityToken, Status: 'Login Succeeded' });
      },
      { body: 'secret', waitsForOthers: true },
    ),

    route(
      'GET',
      '/images/search',
      async (x) => {
        const selection = decodeSearch(
          x.query.text('term'),
          x.query.integer('limit'),
          parseFilters(x.query.text('filters')),
        );
        const found = await queries.search(selection, decodeCredentials(x.header('x-registry-auth')), x.signal);
        x.sendJson(200, found.map(searchJson));
      },
      { waitsForOthers: true },
    ),

    route(
      'GET',
      '/distribution/{name...}/json',
      async (x) => {
        const name = x.param('name');
        if (isDigest(name) || /^[a-f0-9]{64}$/.test(name))
          throw invalid('no manifest found for full image ID', { code: 'INVALID_REFERENCE' });
        const reference = withDefaultTag(parseReference(name));
        x.sendJson(
          200,
          remoteJson(await queries.inspect(reference, decodeCredentials(x.header('x-registry-auth')), x.signal)),
        );
      },
      { waitsForOthers: true },
    ),

    route('POST', '/images/{name...}/push', async (x) => {
      const credentials = await pushCredentials(x);
      const written = parseReference(x.param('name'));
      const tag = x.query.text('tag');
      if (tag !== '' && !isTag(tag)) throw invalid('invalid tag format', { code: 'INVALID_REFERENCE' });
      const reference = tag === '' ? written : { domain: written.domain, path: written.path, tag };
      const asked = x.atLeast(1, 46) ? x.query.text('platform') : '';
      const platform = asked === '' ? undefined : platformObject(asked);
      if (platform) {
        const name = tag === '' ? x.param('name') : `${x.param('name')}:${tag}`;
        requirePlatform(images.resolve(name), platform, name);
      }
      await pump(
        await pushes.push({ reference, platform, credentials }, x.signal),
        x.stream(200, { 'Content-Type': 'application/json' }),
      );
    }),
  ];
}

/** Returns the credentials of the header, which may hold none; without a header the body must have them. */
async function pushCredentials(x: Exchange): Promise<Credentials | undefined> {
  const header = x.header('x-registry-auth');
  if (header !== undefined && header !== '') return decodeCredentials(header);
  try {
    return credentialsOf(await x.json<unknown>());
  } catch (error) {
    throw invalid(`bad parameters and missing X-Registry-Auth: ${messageOf(error)}`, {
      code: 'MISSING_CREDENTIALS',
      cause: error,
    });
  }
}
