/** Makes plugins of what clients and registries send, publishes them under their names, and pushes them. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, EngineError, internal, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import {
  canonicalName,
  canonicalString,
  familiarName,
  type ImageReference,
  parseReference,
} from '../../images/reference.js';
import type { ArchiveSource } from '../../ports/archives.js';
import type { PluginConfig, PluginPrivilege, PluginRecord } from '../../ports/managed-plugin.js';
import type { ProgressFact } from '../../ports/progress.js';
import { type CreatePluginDeps, fillFromArchive } from '../../plugins/managed/create-plugin.js';
import { parsePluginConfig } from '../../plugins/managed/plugin-config.js';
import type { PluginStore, StagedPlugin } from '../../plugins/managed/plugin-store.js';
import { checkGranted, privilegesOf } from '../../plugins/managed/privileges.js';
import { downloadBlob, fetchPlugin, type RemotePlugin } from '../../plugins/managed/remote-plugin.js';
import { initialSettings } from '../../plugins/managed/settings.js';
import { unpackRootfs } from '../../plugins/managed/unpack-rootfs.js';
import { type RegistryAccess, withGrant } from '../../registry/access.js';
import { digestOf } from '../../registry/client.js';
import type { Credentials } from '../../registry/credentials.js';
import { parseManifest } from '../../registry/manifest.js';
import { pushScope } from '../../registry/token.js';
import { placeOf, putManifest } from '../../registry/upload.js';
import { PLUGIN_CONFIG_TYPE } from '../../plugins/managed/manifest.js';
import { pushConfig } from '../push/push.effects.js';
import { uploadFile } from '../push/upload.effects.js';
import type { RegistrySessions } from '../registry-session/sessions.js';
import { newPluginName, type Plugins } from './plugins.js';

export interface PluginMakerDeps extends CreatePluginDeps {
  readonly plugins: Plugins;
  readonly store: PluginStore;
  readonly sessions: Pick<RegistrySessions, 'accessTo' | 'ownAccessTo'>;
  readonly emit: (action: string, id: string, attributes: Readonly<Record<string, string>>) => void;
}

/** A plugin that is wanted from a registry. */
export interface PullOrder {
  /** The registry's name of it. */
  readonly remote: string;
  readonly credentials: Credentials | undefined;
  readonly granted: readonly PluginPrivilege[];
}

type Say = (fact: ProgressFact) => void;

const RETRY_DELAY_MS = 5000;

export class PluginMaker {
  constructor(private readonly deps: PluginMakerDeps) {}

  /**
   * Makes a plugin of an archive with `config.json` and `rootfs`.
   * @throws EngineError invalid for a name or an archive that is none; conflict when there is one of this name.
   */
  async create(text: string, source: ArchiveSource): Promise<PluginRecord> {
    const { plugins, store, emit } = this.deps;
    const { name } = newPluginName(text);
    // The client need not send everything to hear of it.
    plugins.requireFree(name);
    const record = await this.#staged(async (staged) => {
      const config = await fillFromArchive(this.deps, staged, source);
      return plugins.install(name, () => store.publish(staged, newRecord(name, name, config)));
    });
    emit('create', record.id, { name });
    return record;
  }

  /** Returns the privileges that a plugin of a registry needs. @throws EngineError invalid for what is no plugin. */
  async privileges(
    remote: string,
    credentials: Credentials | undefined,
    signal: AbortSignal,
  ): Promise<PluginPrivilege[]> {
    const { config } = await this.#fetch(remoteReference(remote), credentials, signal);
    return privilegesOf(parsePluginConfig(config));
  }

  /** Returns the name that a plugin gets here. @throws EngineError invalid, also when there is one of this name. */
  nameFor(remote: string, wanted: string): string {
    const reference = remoteReference(remote);
    const { domain, path, tag } = reference;
    if (wanted !== '' && parseReference(wanted).digest !== undefined)
      throw invalid('cannot use digest in plugin tag', { code: 'INVALID_REFERENCE' });
    const own = familiarName({ domain, path }) + (tag === undefined ? '' : `:${tag}`);
    const { name } = newPluginName(wanted === '' ? own : wanted);
    try {
      this.deps.plugins.requireFree(name);
    } catch (error) {
      throw isEngineError(error) ? new EngineError('invalid', error.message, { code: 'PLUGIN_NAME' }) : error;
    }
    return name;
  }

  /** Installs a plugin of a registry. @throws EngineError invalid `incorrect privileges`; the registry's failures. */
  async pull(name: string, order: PullOrder, say: Say, signal: AbortSignal): Promise<PluginRecord> {
    const { plugins, store, emit } = this.deps;
    const reference = remoteReference(order.remote);
    const record = await this.#staged(async (staged) => {
      const config = await this.#fill(staged, reference, order, say, signal);
      const made = newRecord(name, canonicalString(tagged(reference)), config);
      return plugins.install(name, () => store.publish(staged, made));
    });
    emit('pull', record.id, { name });
    return record;
  }

  /** Refuses the upgrade of a plugin that is enabled. @throws EngineError conflict, not-found. */
  requireUpgradable(plugin: string): void {
    const { name, enabled } = this.deps.plugins.get(plugin);
    if (enabled)
      throw conflict(`plugin must be disabled before upgrading: plugin ${name} is enabled`, {
        code: 'PLUGIN_ENABLED',
      });
  }

  /** Replaces a plugin that does not run by one of a registry; what was set is kept where it can be. */
  async upgrade(plugin: string, order: PullOrder, say: Say, signal: AbortSignal): Promise<void> {
    const reference = remoteReference(order.remote);
    await this.#staged(async (staged) => {
      const config = await this.#fill(staged, reference, order, say, signal);
      const made = { config, reference: canonicalString(tagged(reference)) };
      await this.deps.plugins.upgrade(plugin, { staged, made });
    });
  }

  /** Pushes a plugin under its name. */
  async push(plugin: string, credentials: Credentials | undefined, say: Say, signal: AbortSignal): Promise<void> {
    const { plugins, store, sessions } = this.deps;
    const record = plugins.get(plugin);
    const reference = parseReference(record.name);
    const { domain, path, tag = 'latest' } = reference;
    const { content } = store.files(record);
    say({ kind: 'line', text: `The push refers to repository [${canonicalName(reference)}]` });
    const [config, bytes] = await Promise.all(
      ['config.json', 'manifest.json'].map((name) => readFile(join(content, name))),
    );
    if (!config || !bytes) throw internal(`plugin ${record.name} has no documents`);
    const manifest = parseManifest(bytes, undefined, record.name, new Set([PLUGIN_CONFIG_TYPE]));
    if (manifest.kind !== 'image') throw internal(`plugin ${record.name} has no manifest`);
    const access = await sessions.ownAccessTo(domain, credentials);
    const target = { access, domain, path };
    for (const layer of manifest.layers) {
      const id = shortId(layer.digest);
      say({ kind: 'state', status: 'Pushing', id });
      const file = { ...layer, path: blobPath(content, layer.digest) };
      await uploadFile({ retryDelayMs: RETRY_DELAY_MS }, file, target, () => undefined, signal);
      say({ kind: 'state', status: 'Pushed', id });
    }
    await pushConfig(target, digestOf(config), config, signal);
    await withGrant(access, pushScope(path), signal, (grant) =>
      putManifest(
        placeOf(grant, path),
        tag,
        { bytes, mediaType: manifest.mediaType },
        { limits: access.limits, signal },
      ),
    );
    const digest = digestOf(bytes);
    say({ kind: 'line', text: `${tag}: digest: ${digest} size: ${bytes.length}` });
    say({ kind: 'pushed', tag, digest, sizeBytes: bytes.length });
  }

  /** Brings everything of a plugin into a staged one, if what it needs is granted. */
  async #fill(
    staged: StagedPlugin,
    reference: ImageReference,
    { credentials, granted }: PullOrder,
    say: Say,
    signal: AbortSignal,
  ): Promise<PluginConfig> {
    const { access, ...remote } = await this.#fetch(reference, credentials, signal);
    const { tag = 'latest', path } = tagged(reference);
    say({ kind: 'line', text: `Pulling from ${familiarName(reference)}`, id: tag });
    say({ kind: 'line', text: `Digest: ${remote.digest}` });
    const config = parsePluginConfig(remote.config);
    checkGranted(config, granted);
    const blobs: string[] = [];
    for (const descriptor of remote.layers) {
      const { digest, sizeBytes } = descriptor;
      const [file, id] = [blobPath(staged.content, digest), shortId(digest)];
      const onBytes = (current: number): void =>
        say({ kind: 'bytes', status: 'Downloading', id, current, total: sizeBytes });
      if (!blobs.includes(file)) await downloadBlob(access, { path, descriptor, file, onBytes }, signal);
      blobs.push(file);
      say({ kind: 'state', status: 'Complete', id });
    }
    await unpackRootfs(this.deps.pool, staged, config, blobs);
    await writeFile(join(staged.content, 'config.json'), remote.config, { mode: 0o600 });
    await writeFile(join(staged.content, 'manifest.json'), remote.manifest, { mode: 0o600 });
    return config;
  }

  /** Fetches the documents of a plugin from the first host that has it. */
  async #fetch(
    reference: ImageReference,
    credentials: Credentials | undefined,
    signal: AbortSignal,
  ): Promise<RemotePlugin & { readonly access: RegistryAccess }> {
    let failure: unknown = internal('no host to ask');
    for (const access of await this.deps.sessions.accessTo(reference.domain, credentials)) {
      try {
        return { ...(await fetchPlugin(access, reference, signal)), access };
      } catch (error) {
        failure = error;
        if (signal.aborted) break;
      }
    }
    if (!isEngineError(failure, 'not-found')) throw failure;
    const text = `error resolving plugin reference: ${canonicalString(tagged(reference))}: not found`;
    throw notFound(text, { cause: failure });
  }

  /** Deletes the files in the end, unless they were published. */
  async #staged<T>(make: (staged: StagedPlugin) => Promise<T>): Promise<T> {
    const staged = await this.deps.store.stage();
    try {
      return await make(staged);
    } finally {
      await this.deps.store.discard(staged);
    }
  }
}

function newRecord(name: string, reference: string, config: PluginConfig): Omit<PluginRecord, 'id' | 'tree'> {
  return { name, reference, enabled: false, config, settings: initialSettings(config), timeoutSeconds: 0 };
}

function remoteReference(text: string): ImageReference {
  if (text === '') throw invalid('invalid reference format', { code: 'INVALID_REFERENCE' });
  return parseReference(text);
}

function tagged(reference: ImageReference): ImageReference {
  return reference.tag === undefined && reference.digest === undefined ? { ...reference, tag: 'latest' } : reference;
}

function shortId(digest: string): string {
  return digest.slice('sha256:'.length, 'sha256:'.length + 12);
}

function blobPath(content: string, digest: string): string {
  return join(content, digest.slice('sha256:'.length));
}
