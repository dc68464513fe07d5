/** Binds, mounts and image volumes of a create request, brought to one list. Pure. */
import { randomBytes } from 'node:crypto';
import { normalize, isAbsolute } from 'node:path';
import { type EngineError, invalid } from '../../../errors/engine-error.js';
import type { ContainerConfig, HostConfig, MountPoint, MountRequest } from '../../../ports/container.js';
import { choosesPropagation, PROPAGATIONS } from '../../../ports/propagation.js';
import { ownMember } from '../../../text/own-member.js';

/** A bind may have these words after the second colon, one of each group. */
const MODES: readonly ReadonlySet<string>[] = [
  new Set(['ro', 'rw']),
  new Set(['z', 'Z']),
  PROPAGATIONS,
  new Set(['nocopy']),
  new Set(['cached', 'delegated', 'consistent']),
];
/** Each is a volume of its own, on the disk; an image could have a create make so many that it takes minutes. */
const MAX_ANONYMOUS = 1000;
const VOLUME_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]+$/;

export interface MountContext {
  /** Mounts of other containers. */
  readonly inherited: readonly MountPoint[];
  readonly keepsSubmountsWritable: boolean;
  /** Directory with the root file systems of all containers. */
  readonly dataRoot: string;
}

/**
 * Returns the mounts of a container, one per destination: binds win over mounts of others' volumes, which win over
 * volumes of the image. Volumes have no source yet, and no driver but the one that was asked for; anonymous ones get
 * their name here.
 */
export function planMounts(
  config: ContainerConfig,
  host: HostConfig,
  { inherited, keepsSubmountsWritable, dataRoot }: MountContext,
): MountPoint[] {
  const plan = new Map<string, MountPoint>();
  for (const point of inherited) plan.set(point.Destination, point);
  const explicit = new Set<string>();
  const claim = (destination: string): void => {
    if (explicit.has(destination)) throw invalid(`Duplicate mount point: ${destination}`, { code: 'DUPLICATE_MOUNT' });
    explicit.add(destination);
  };
  const add = (given: MountPoint): void => {
    const point = withRootPropagation(given, dataRoot);
    claim(point.Destination);
    plan.set(
      point.Destination,
      keepsSubmountsWritable && point.Type === 'bind' && !point.RW ? withWritableSubmounts(point) : point,
    );
  };
  for (const bind of host.Binds ?? []) add(parseBind(bind, host.VolumeDriver));
  for (const request of host.Mounts ?? []) add({ ...fromMount(request), Spec: request });
  for (const destination of Object.keys(host.Tmpfs ?? {})) claim(checkTarget(destination));
  const places = Object.keys(config.Volumes ?? {});
  if (places.length > MAX_ANONYMOUS)
    throw invalid(`a container or its image has more than ${MAX_ANONYMOUS} volumes`, { code: 'TOO_MANY_VOLUMES' });
  for (const destination of places) {
    const target = checkTarget(destination, `invalid volume specification: '${destination}'`);
    if (plan.has(target) || ownMember(host.Tmpfs, target) !== undefined) continue;
    plan.set(target, volumePoint(newVolumeName(), target, '', true, host.VolumeDriver));
  }
  return [...plan.values()];
}

/**
 * A private mount of the data root would hold the root file systems of other containers, and nobody could remove them.
 * So such a bind is `rslave` unless the client chooses; a choice that holds them is refused.
 */
function withRootPropagation(point: MountPoint, dataRoot: string): MountPoint {
  const { Type, Source, Propagation } = point;
  if (Type !== 'bind' || !(isWithin(Source, dataRoot) || isWithin(dataRoot, Source))) return point;
  if (!choosesPropagation(point)) return { ...point, Propagation: 'rslave' };
  if (Propagation === 'rslave' || Propagation === 'rshared') return point;
  throw invalid(
    'invalid mount config: must use either propagation mode "rslave" or "rshared" when mount source is within the ' +
      `daemon root, daemon root: ${JSON.stringify(dataRoot)}, bind mount source: ${JSON.stringify(Source)}, ` +
      `propagation: ${JSON.stringify(Propagation)}`,
    { code: 'BIND_OF_DATA_ROOT' },
  );
}

function isWithin(path: string, dir: string): boolean {
  const base = dir.endsWith('/') ? dir : `${dir}/`;
  return path === dir || path.startsWith(base);
}

function withWritableSubmounts(point: MountPoint): MountPoint {
  const spec: MountRequest = point.Spec ?? {
    Type: 'bind',
    Source: point.Source,
    Target: point.Destination,
    ReadOnly: true,
    BindOptions: { CreateMountpoint: true },
  };
  return { ...point, Spec: { ...spec, BindOptions: { ...spec.BindOptions, ReadOnlyNonRecursive: true } } };
}

/** Returns a name for an anonymous volume: 64 hex digits. */
export function newVolumeName(): string {
  return randomBytes(32).toString('hex');
}

function parseBind(text: string, driver: string): MountPoint {
  const parts = text.split(':');
  // A path without a colon is the place of an anonymous volume.
  if (parts.length === 1 && text !== '')
    return volumePoint(newVolumeName(), checkTarget(text, `invalid volume specification: '${text}'`), '', true, driver);
  const [source = '', target = '', mode = ''] = parts;
  if (parts.length < 2 || parts.length > 3 || source === '' || target === '')
    throw invalid(`invalid volume specification: '${text}'`);
  const options = parseMode(mode);
  const type = isAbsolute(source) ? 'bind' : 'volume';
  const refused = `invalid volume specification: '${text}': invalid mount config for type "${type}"`;
  const destination = checkTarget(target, refused);
  const writable = !options.includes('ro');
  const propagation = options.find((option) => PROPAGATIONS.has(option)) ?? '';
  if (type === 'volume' && propagation !== '') throw invalid(`${refused}: field BindOptions must not be specified`);
  if (type === 'bind' && options.includes('nocopy'))
    throw invalid(`${refused}: field VolumeOptions must not be specified`);
  if (!isAbsolute(source)) {
    if (!VOLUME_NAME.test(source)) {
      throw badVolumeName(source);
    }
    return volumePoint(source, destination, mode === '' ? 'z' : mode, writable, driver);
  }
  return {
    Type: 'bind',
    Source: normalize(source),
    Destination: destination,
    Mode: mode,
    RW: writable,
    Propagation: propagation || 'rprivate',
  };
}

function badVolumeName(name: string): EngineError {
  return invalid(
    `create ${name}: "${name}" includes invalid characters for a local volume name, ` +
      'only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed. ' +
      'If you intended to pass a host directory, use absolute path',
  );
}

function fromMount(request: MountRequest): MountPoint {
  const where = `invalid mount config for type "${request.Type}"`;
  if (request.Target === '') throw invalid(`${where}: field Target must not be empty`);
  const destination = checkTarget(request.Target, where);
  const writable = request.ReadOnly !== true;
  switch (request.Type) {
    case 'bind': {
      const source = request.Source ?? '';
      if (source === '') throw invalid(`${where}: field Source must not be empty`);
      if (!isAbsolute(source)) throw invalid(`${where}: invalid mount path: '${source}' mount path must be absolute`);
      const propagation = request.BindOptions?.Propagation || 'rprivate';
      if (!PROPAGATIONS.has(propagation)) throw invalid(`${where}: invalid propagation mode: ${propagation}`);
      checkRecursion(where, request);
      return {
        Type: 'bind',
        Source: normalize(source),
        Destination: destination,
        Mode: '',
        RW: writable,
        Propagation: propagation,
      };
    }
    case 'volume': {
      if (!request.Source && !writable)
        throw invalid(`${where}: must not set ReadOnly mode when using anonymous volumes`);
      checkSubpath(where, request.VolumeOptions?.Subpath);
      if (!request.Source && request.VolumeOptions?.Subpath)
        throw invalid(`${where}: must not set Subpath when using anonymous volumes`);
      const name = request.Source || newVolumeName();
      if (!VOLUME_NAME.test(name)) throw badVolumeName(name);
      return volumePoint(name, destination, 'z', writable, request.VolumeOptions?.DriverConfig?.Name ?? '');
    }
    case 'tmpfs':
      if (request.Source) throw invalid(`${where}: field Source must not be specified`);
      if ((request.TmpfsOptions?.SizeBytes ?? 0) < 0)
        throw invalid(`${where}: field TmpfsOptions.SizeBytes must not be negative`);
      checkTmpfsOptions(where, request.TmpfsOptions?.Options ?? []);
      return { Type: 'tmpfs', Source: '', Destination: destination, Mode: '', RW: writable, Propagation: '' };
    case 'image':
      if (!request.Source) throw invalid(`${where}: field Source must not be empty`);
      checkSubpath(where, request.ImageOptions?.Subpath);
      return {
        Type: 'image',
        Name: request.Source,
        Source: '',
        Destination: destination,
        Mode: '',
        RW: false,
        Propagation: 'rprivate',
      };
    default:
      throw invalid(`${where}: mount type unknown`);
  }
}

function checkSubpath(where: string, subpath = ''): void {
  if (isAbsolute(subpath) || normalize(subpath).split('/')[0] === '..')
    throw invalid(`${where}: subpath must be a relative path within the volume`);
}

function checkRecursion(where: string, { ReadOnly, BindOptions }: MountRequest): void {
  for (const option of ['ReadOnlyNonRecursive', 'ReadOnlyForceRecursive'] as const) {
    if (BindOptions?.[option] && ReadOnly !== true)
      throw invalid(`${where}: mount options conflict: !ReadOnly && BindOptions.${option}`);
  }
  for (const option of ['ReadOnlyNonRecursive', 'NonRecursive'] as const) {
    if (BindOptions?.[option] && BindOptions.ReadOnlyForceRecursive)
      throw invalid(`${where}: mount options conflict: BindOptions.${option} && BindOptions.ReadOnlyForceRecursive`);
  }
}

/** Refuses options that the API does not let pass. Others have fields of their own. */
function checkTmpfsOptions(where: string, options: readonly (readonly string[])[]): void {
  for (const option of options) {
    if (option.length < 1 || option.length > 2) throw invalid(`${where}: invalid option array length`);
    if (option[0] !== 'exec' && option[0] !== 'noexec') throw invalid(`${where}: invalid option: ${option[0] ?? ''}`);
  }
}

function volumePoint(name: string, destination: string, mode: string, writable: boolean, driver: string): MountPoint {
  return {
    Type: 'volume',
    Name: name,
    Source: '',
    Destination: destination,
    Driver: driver,
    Mode: mode,
    RW: writable,
    Propagation: '',
  };
}

/** Returns the destination of a mount, normalised. @param refused how a refusal begins. @throws EngineError invalid. */
function checkTarget(target: string, refused?: string): string {
  const start = refused === undefined ? '' : `${refused}: `;
  if (!isAbsolute(target)) throw invalid(`${start}invalid mount path: '${target}' mount path must be absolute`);
  const clean = normalize(target).replace(/\/$/, '');
  if (clean === '') throw invalid(`${start}invalid specification: destination can't be '/'`);
  return clean;
}

function parseMode(mode: string): string[] {
  const options = mode === '' ? [] : mode.split(',');
  const groups = options.map((option) => MODES.find((group) => group.has(option)));
  if (groups.includes(undefined) || new Set(groups).size < groups.length) throw invalid(`invalid mode: ${mode}`);
  return options;
}

/**
 * Returns the mounts of the containers that `VolumesFrom` names: `container[:mode]`. `find` gives those of one
 * container.
 */
export function inheritedMounts(
  volumesFrom: readonly string[],
  find: (reference: string) => readonly MountPoint[],
): MountPoint[] {
  return volumesFrom.flatMap((spec) => {
    if (spec === '') throw invalid('volumes-from specification cannot be an empty string');
    const colon = spec.indexOf(':');
    const mode = colon < 0 ? '' : spec.slice(colon + 1);
    const options = parseMode(mode);
    if (options.some((option) => PROPAGATIONS.has(option) || option === 'nocopy'))
      throw invalid(`invalid mode: ${mode}`);
    return find(colon < 0 ? spec : spec.slice(0, colon)).map((point) => ({
      ...point,
      Mode: '',
      RW: point.RW && !options.includes('ro'),
    }));
  });
}
