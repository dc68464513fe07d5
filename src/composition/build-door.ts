/** Makes the door by which clients of BuildKit reach the build engine. */
import { join } from 'node:path';
import type { ImageConfigs } from '../actors/build/image-configs.js';
import { pushImage } from '../actors/push/push-image.js';
import type { Pushes } from '../actors/push/pushes.js';
import { FileStatements } from '../build/outputs/file-statements.js';
import { ImageExport } from '../build/outputs/image-export.js';
import { LayerBlobs } from '../build/outputs/layer-blobs.js';
import type { GcRule } from '../build/cache/gc-rules.js';
import { CONTEXT_FILE, openRemoteContext } from '../build/sources/remote-context.js';
import type { TarContexts } from '../build/tar-context.js';
import { grantable } from '../config/builder-entitlements.js';
import { AgentSockets } from '../http/buildkit/agent-sockets.js';
import { ContextCache } from '../http/buildkit/context-cache.js';
import { BuildKitDoor } from '../http/buildkit/door.js';
import { EngineSolver } from '../http/buildkit/engine-solver.js';
import { BuildHistory } from '../http/buildkit/history.js';
import { RequestBodies } from '../http/buildkit/request-bodies.js';
import { Sessions } from '../http/buildkit/session.js';
import { SourceReferences } from '../http/buildkit/source-references.js';
import { hostPlatforms } from '../http/buildkit/worker-record.js';
import type { BuildSources } from '../ports/build-sources.js';
import type { BuildEngine } from '../ports/build.js';
import type { SourceDirectories } from '../ports/build-cache.js';
import { hostPlatform } from '../registry/platform.js';
import type { WorkerPool } from '../workers/pool.js';
import type { Base } from './base.js';
import type { Drivers } from './drivers.js';

/** Logs of builds that have ended take so much of the disk; a step may print as much as it likes. */
const HISTORY_LOG_BYTES = 256 * 1024 * 1024;

export interface DoorNeeds {
  readonly builds: BuildEngine;
  readonly contexts: TarContexts;
  readonly configs: ImageConfigs;
  readonly cache: SourceDirectories;
  readonly pushes: Pushes;
  /** Its threads compress layers. */
  readonly exportPool: WorkerPool;
  readonly sources: BuildSources;
  readonly gcRules: readonly GcRule[];
  /** The store has images as registries have them, with indexes. */
  readonly keepsIndexes: boolean;
}

export function composeBuildDoor(
  { log, live, settings, dataRoot, execRoot, temporary }: Base,
  { network, archives, layers, pool }: Drivers,
  { builds, contexts, configs, cache, pushes, exportPool, sources, gcRules, keepsIndexes }: DoorNeeds,
): { readonly door: BuildKitDoor; readonly received: ContextCache } {
  const root = join(dataRoot, 'builder');
  const sessions = new Sessions();
  const bodies = new RequestBodies();
  const agents = new AgentSockets(join(execRoot, 'agents'));
  const blobParts = { layers, pool: exportPool, tmpDir: temporary.tmpDir };
  const received = new ContextCache(join(root, 'contexts'), cache, {
    writeFiles: (batch) => pool.run('build-write-files', batch),
    noteDigests: (digests) => pool.run('build-note-digests', digests),
  });
  const solver = new EngineSolver({
    engine: builds,
    sessions,
    contexts: received,
    agents,
    configs,
    host: hostPlatform(),
    grantable: grantable(live.fixed.builderEntitlements),
    bodies,
    unpack: (source) => contexts.unpack(source, CONTEXT_FILE),
    fetch: (order, signal) => openRemoteContext(sources, order, signal),
    pack: (directory, mtimeSeconds) => archives.readDirectory(directory, undefined, mtimeSeconds).tar,
    state: (...order) => FileStatements.write(blobParts, ...order),
    prepare: (...order) => ImageExport.prepare(blobParts, ...order),
    openBlobs: (form) => LayerBlobs.open(blobParts, form),
    layers,
    keepsIndexes,
    pushCache: (...order) => pushes.pushCache(...order),
    pushSet: (...order) => pushes.pushImageSet(...order),
    push: (reference, credentials, signal) =>
      pushImage(pushes, { reference, platform: undefined, credentials }, signal),
  });
  const door = new BuildKitDoor({
    sessions,
    bodies,
    sources: new SourceReferences({ sources, sessions, agents }),
    history: new BuildHistory(
      join(root, 'history'),
      { ...live.fixed.builderHistory, maxLogBytes: HISTORY_LOG_BYTES },
      log,
    ),
    solver,
    worker: {
      id: settings.shown().id,
      platforms: hostPlatforms(hostPlatform()),
      snapshotter: layers.driver,
      gcRules,
      hostGateway: () => [...live.fixed.hostGatewayIps, ...network.hostAddresses()][0],
    },
  });
  return { door, received };
}
