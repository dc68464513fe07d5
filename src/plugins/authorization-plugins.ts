/**
 * Authorization plugins: each is asked in order about a request, and again about its reply; the first denial counts.
 */
import { type EngineError, forbidden, internal, messageOf } from '../errors/engine-error.js';
import type {
  AuthorizationReply,
  AuthorizationRequest,
  AuthorizedRequest,
  Authorizer,
} from '../ports/authorization.js';
import { memberOf } from './plugin-client.js';
import { Plugin, type PluginOptions } from './plugin.js';

/** Credentials for registries and proxies are in these headers. */
const SECRET_HEADERS = new Set(['authorization', 'x-registry-auth', 'x-registry-config']);

export class AuthorizationPlugins implements Authorizer {
  readonly #options: PluginOptions;
  #plugins: readonly Plugin[] = [];

  constructor(options: PluginOptions = {}) {
    this.#options = options;
  }

  get active(): boolean {
    return this.#plugins.length > 0;
  }

  /**
   * Replaces the plugins, at once, for requests that begin from now on. Resolves when all have been greeted; one that
   * cannot be reached denies everything until it can.
   * @throws EngineError internal for the first that cannot be used.
   */
  async use(ids: readonly string[]): Promise<void> {
    const before = new Map(this.#plugins.map((plugin) => [plugin.id, plugin]));
    this.#plugins = ids.map((id) => before.get(id) ?? new Plugin(id, 'authz', this.#options));
    for (const [id, plugin] of before) if (!ids.includes(id)) plugin.close();
    for (const plugin of this.#plugins) {
      // Another call may remove the plugin meanwhile: then nobody asks it, and a failed greeting does not matter.
      const isUsed = (): boolean => this.#plugins.includes(plugin);
      if (!isUsed()) continue;
      await plugin.activate().catch((error: unknown) => {
        if (isUsed()) throw failed(plugin, error);
      });
    }
  }

  async authorize(request: AuthorizationRequest): Promise<AuthorizedRequest> {
    const plugins = this.#plugins;
    const fields = requestFields(request);
    for (const plugin of plugins) await ask(plugin, 'AuthZPlugin.AuthZReq', fields);
    return {
      authorizeReply: async (reply) => {
        const replyFields = { ...fields, ...fieldsOfReply(reply) };
        for (const plugin of plugins) await ask(plugin, 'AuthZPlugin.AuthZRes', replyFields);
      },
    };
  }

  close(): void {
    for (const plugin of this.#plugins) plugin.close();
    this.#plugins = [];
  }
}

/** Returns the request with the names of the plugin protocol, without what is not shown to plugins. */
function requestFields({
  user,
  method,
  uri,
  headers,
  body,
  peerCertificates,
}: AuthorizationRequest): Readonly<Record<string, unknown>> {
  const shown = [...headers]
    .filter(([name]) => !SECRET_HEADERS.has(name) && name !== 'host')
    .map(([name, value]) => [canonicalName(name), value]);
  return {
    ...(user === undefined ? {} : { User: user, UserAuthNMethod: 'TLS' }),
    RequestMethod: method,
    RequestUri: uri,
    ...(body === undefined ? {} : { RequestBody: base64(body) }),
    RequestHeaders: Object.fromEntries(shown) as Record<string, string>,
    ...(peerCertificates.length === 0
      ? {}
      : { RequestPeerCertificates: peerCertificates.map((pem) => base64(Buffer.from(pem))) }),
  };
}

function fieldsOfReply({ status, headers, body }: AuthorizationReply): Readonly<Record<string, unknown>> {
  return {
    ResponseStatusCode: status,
    ResponseHeaders: headers,
    ...(body === undefined ? {} : { ResponseBody: base64(body) }),
  };
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64');
}

/** Turns `content-type` into `Content-Type`, the spelling that plugins written in Go look for. */
function canonicalName(name: string): string {
  return name.replace(/(^|-)([a-z])/g, (match) => match.toUpperCase());
}

async function ask(plugin: Plugin, method: string, fields: unknown): Promise<void> {
  let answer: unknown;
  try {
    answer = await plugin.call(method, fields);
  } catch (error) {
    throw failed(plugin, error);
  }
  const [allow, message, failure] = ['allow', 'msg', 'err'].map((name) => memberOf(answer, name));
  if (typeof failure === 'string' && failure !== '') throw failed(plugin, new Error(failure));
  // Anything but a clear yes is a no.
  if (typeof allow !== 'boolean') throw failed(plugin, new Error(`${method}: the answer has no boolean "Allow"`));
  if (!allow)
    throw forbidden(`authorization denied by plugin ${plugin.id}: ${typeof message === 'string' ? message : ''}`, {
      code: 'AUTHORIZATION',
    });
}

function failed(plugin: Plugin, cause: unknown): EngineError {
  return internal(`plugin ${plugin.id} failed with error: ${messageOf(cause)}`, { code: 'AUTHORIZATION', cause });
}
