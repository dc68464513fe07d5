/** The mounts of a RUN: what its instruction asks for, as the runtime takes it. */
import { chmod, chown } from 'node:fs/promises';
import { basename } from 'node:path';
import type { RunMount } from '../../../build/dockerfile/ast.js';
import { cleanPath, joinPath } from '../../../build/files/paths.js';
import { internal, isEngineError } from '../../../errors/engine-error.js';
import type { BuildCache, CacheMountOrder } from '../../../ports/build-cache.js';
import type { BuildRequest } from '../../../ports/build.js';
import type { MountPoint } from '../../../ports/container.js';
import type { IdMaps, Owner } from '../../../ports/id-maps.js';
import { hostOwner } from '../../../sys/users/id-maps.js';
import type { Undo } from '../../container/life/undo.js';
import { STEP_REFUSED } from './entitlements.js';
import { type KnownTree, MountTrees } from './mount-trees.js';
import type { StepPlace } from './step-place.js';

const SECRETS = '/run/secrets';
const AGENTS = '/run/buildkit/ssh_agent';

/** The agent that a mount without a name gets. */
export const DEFAULT_AGENT = 'default';

export interface MountDeps {
  readonly cache: Pick<BuildCache, 'openMounts'>;
  readonly userMaps: IdMaps | undefined;
  /** The same maps where layers are kept with the owners that images have. */
  readonly shownMaps: IdMaps | undefined;
}

export interface MountOrder {
  readonly mounts: readonly RunMount[];
  readonly workingDir: string;
  readonly request: Pick<BuildRequest, 'secret' | 'sshAgent' | 'buildArgs'>;
  /** The command as it is shown, for the list of what the cache keeps. */
  readonly command: string;
  /** Returns the files that the mount with this index is from; undefined: from none. */
  readonly treeOf: (mount: number) => Promise<KnownTree | undefined>;
}

export class StepMounts {
  readonly points: MountPoint[] = [];
  readonly secretEnv: string[] = [];
  /** Where the first agent is, or would be. */
  sshSocket: string | undefined;
  readonly #trees: MountTrees;
  #agents = 0;

  constructor(
    private readonly deps: MountDeps & ConstructorParameters<typeof MountTrees>[0],
    private readonly place: StepPlace,
    private readonly undo: Undo,
    private readonly signal: AbortSignal,
  ) {
    this.#trees = new MountTrees(deps, place, undo, signal);
  }

  /** Makes all mounts, in the order of the instruction. What they need is given back by `undo`. */
  async open(order: MountOrder): Promise<void> {
    const caches = await this.#caches(order);
    for (const [index, mount] of order.mounts.entries()) {
      if (mount.type === 'secret') await this.#secret(mount, order);
      else if (mount.type === 'ssh') await this.#agent(mount, order);
      else {
        const target = mountTarget(mount, order.workingDir);
        if (mount.type === 'tmpfs') this.points.push(memoryPoint(target, mount));
        else if (mount.type === 'cache') this.points.push(bindPoint(caches.get(index) ?? '', target, !mount.readOnly));
        else await this.#bind(mount, target, index, order);
      }
    }
  }

  async #bind(mount: RunMount, target: string, index: number, { treeOf }: MountOrder): Promise<void> {
    const tree = await treeOf(index);
    if (tree === undefined) throw internal(`mount ${target} is from nothing`);
    const path = await this.#trees.open(tree, mount.source, !mount.readOnly);
    this.points.push(bindPoint(path, target, !mount.readOnly));
  }

  /** Returns the directories of the caches by the indexes of their mounts. */
  async #caches(order: MountOrder): Promise<ReadonlyMap<number, string>> {
    const wanted = [...order.mounts.entries()].filter(([, { type }]) => type === 'cache');
    if (wanted.length === 0) return new Map();
    const orders: (CacheMountOrder & { readonly place: string })[] = [];
    for (const [index, mount] of wanted) orders.push(await this.#cacheOrder(mount, index, order));
    const opened = await this.deps.cache.openMounts(orders, this.signal);
    this.undo.add('cache mounts', () => opened.release());
    const paths = new Map<number, string>();
    for (const [at, [index]] of wanted.entries())
      paths.set(index, await this.#trees.within(opened.directories[at] ?? '', orders[at]?.place ?? '/'));
    return paths;
  }

  /** A cache that begins with files has a name for them, too: it is another one when those files are others. */
  async #cacheOrder(
    mount: RunMount,
    index: number,
    order: MountOrder,
  ): Promise<CacheMountOrder & { readonly place: string }> {
    const { sharing = 'shared', mode, uid, gid, source } = mount;
    const target = mountTarget(mount, order.workingDir);
    const tree = await order.treeOf(index);
    const namespace = order.request.buildArgs.get('BUILDKIT_CACHE_MOUNT_NS') ?? '';
    const name = `${namespace}/${mount.id || cleaned(mount.target)}`;
    // Files that steps write have their owners on this host: other users, also those of the host, have another cache.
    const own = this.deps.shownMaps ? `${JSON.stringify(this.deps.shownMaps)} ${name}` : name;
    const description = `cached mount ${target} from exec ${order.command} with id "${name}"`;
    if (tree !== undefined) {
      // Each source has a directory of its own, because whole images are not copied for a part of them.
      const founded = `${own}:${await tree.identity()}:${cleanPath(source)}`;
      const seed = (directory: string): Promise<void> => this.#trees.copy(tree, source, directory);
      return { id: founded, sharing, description, seed, place: await this.#trees.placeOfCopy(tree, source) };
    }
    const isOwned = mode !== undefined || uid !== undefined || gid !== undefined;
    const owned = isOwned ? `:${(mode ?? 0o755).toString(8)}:${uid ?? 0}:${gid ?? 0}` : '';
    const seed = (directory: string): Promise<void> => this.#dress(directory, mode ?? 0o755, uid, gid);
    return { id: own + owned, sharing, description, seed, place: source };
  }

  async #secret(mount: RunMount, { request, workingDir }: MountOrder): Promise<void> {
    const { target, env, mode = 0o400, uid = 0, gid = 0, required } = mount;
    const id = secretId(mount);
    const value = await request.secret(id);
    if (value === undefined && required) throw internal(`secret ${id}: not found`, { code: STEP_REFUSED });
    if (env !== undefined) this.secretEnv.push(`${env}=${value?.toString() ?? ''}`);
    if (value === undefined || (env !== undefined && target === '')) return;
    const path = await this.place.file(value, mode, this.#owner({ uid, gid }));
    this.points.push(bindPoint(path, placeIn(workingDir, target || `${SECRETS}/${basename(id)}`), false));
  }

  async #agent(mount: RunMount, { request, workingDir }: MountOrder): Promise<void> {
    const { mode = 0o600, uid = 0, gid = 0, required } = mount;
    const id = mount.id || DEFAULT_AGENT;
    const target = mount.target === '' ? `${AGENTS}.${this.#agents++}` : placeIn(workingDir, mount.target);
    this.sshSocket ??= target;
    try {
      const agent = await request.sshAgent(id);
      this.undo.add('way to an agent', () => agent.close());
      await this.#dress(agent.socketPath, mode, uid, gid);
      this.points.push(bindPoint(agent.socketPath, target, true));
    } catch (error) {
      this.signal.throwIfAborted();
      if (!required) return;
      throw isEngineError(error) ? internal(error.message, { code: STEP_REFUSED, cause: error }) : error;
    }
  }

  async #dress(path: string, mode: number, uid = 0, gid = 0): Promise<void> {
    const owner = this.#owner({ uid, gid });
    await chown(path, owner.uid, owner.gid);
    await chmod(path, mode & 0o7777);
  }

  #owner(owner: Owner): Owner {
    const { userMaps } = this.deps;
    return userMaps ? hostOwner(userMaps, owner) : owner;
  }
}

/** Returns the name of the secret that a mount asks for. */
export function secretId({ source, id, target }: RunMount): string {
  return source || id || basename(target);
}

/** Returns a path in the container, which may be relative to the working directory. */
function placeIn(workingDir: string, path: string): string {
  return cleanPath(path.startsWith('/') ? path : joinPath(workingDir || '/', path));
}

/** Returns the place of a mount with files. @throws EngineError internal for the root itself. */
export function mountTarget({ target }: RunMount, workingDir: string): string {
  const path = placeIn(workingDir, target);
  if (path === '/') throw internal('invalid mount target "/"', { code: STEP_REFUSED });
  return path;
}

/** As Go's path.Clean, which leaves a relative path relative. */
function cleaned(path: string): string {
  return path.startsWith('/') ? cleanPath(path) : cleanPath(path).slice(1) || '.';
}

export function bindPoint(source: string, destination: string, isWritable: boolean): MountPoint {
  return { Type: 'bind', Source: source, Destination: destination, Mode: '', RW: isWritable, Propagation: 'rprivate' };
}

/** Programs may run there, as compilers do. */
function memoryPoint(destination: string, { size, readOnly }: RunMount): MountPoint {
  return {
    Type: 'tmpfs',
    Source: '',
    Destination: destination,
    Mode: '',
    RW: !readOnly,
    Propagation: '',
    Spec: {
      Type: 'tmpfs',
      Target: destination,
      ReadOnly: readOnly,
      TmpfsOptions: { SizeBytes: size, Options: [['exec'], ['dev']] },
    },
  };
}
