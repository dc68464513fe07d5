/** Binds, mounts and image volumes of a create request, brought to one list (engine-api.md 4.2). Pure. */
import { randomBytes } from 'node:crypto';
import { normalize, isAbsolute } from 'node:path';
import { invalid } from '../../errors/engine-error.js';
import type { ContainerConfig, HostConfig, MountPoint, MountRequest } from '../../ports/container.js';

const PROPAGATIONS = new Set(['shared', 'rshared', 'slave', 'rslave', 'private', 'rprivate']);
const IGNORED_MODES = new Set(['z', 'Z', 'cached', 'delegated', 'consistent', 'nocopy']);
const VOLUME_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]+$/;

/**
 * The mounts of a container, one per destination: binds win over mounts of others' volumes, which win over volumes of
 * the image. Volumes have no source yet; anonymous ones get their name here.
 */
export function planMounts(config: ContainerConfig, host: HostConfig, inherited: readonly MountPoint[]): MountPoint[] {
  const plan = new Map<string, MountPoint>();
  for (const point of inherited) plan.set(point.Destination, point);
  const explicit = new Set<string>();
  const add = (point: MountPoint): void => {
    if (explicit.has(point.Destination)) throw invalid(`Duplicate mount point: ${point.Destination}`, { code: 'DUPLICATE_MOUNT' });
    explicit.add(point.Destination);
    plan.set(point.Destination, point);
  };
  for (const bind of host.Binds ?? []) add(parseBind(bind, host.VolumeDriver));
  for (const request of host.Mounts ?? []) add(fromMount(request));
  for (const destination of Object.keys(host.Tmpfs ?? {})) checkTarget(destination, destination);
  for (const destination of Object.keys(config.Volumes ?? {})) {
    const target = checkTarget(destination, destination);
    if (plan.has(target) || host.Tmpfs?.[target] !== undefined) continue;
    plan.set(target, volumePoint(newVolumeName(), target, '', true, host.VolumeDriver));
  }
  return [...plan.values()];
}

/** 64 hex digits: what an anonymous volume is called. */
export function newVolumeName(): string {
  return randomBytes(32).toString('hex');
}

function parseBind(text: string, driver: string): MountPoint {
  const parts = text.split(':');
  const [source = '', target = '', mode = ''] = parts;
  if (parts.length < 2 || parts.length > 3 || source === '' || target === '') throw invalid(`invalid volume specification: '${text}'`);
  const destination = checkTarget(target, text);
  let writable = true;
  let propagation = '';
  for (const option of mode === '' ? [] : mode.split(',')) {
    if (option === 'ro') writable = false;
    else if (PROPAGATIONS.has(option)) propagation = option;
    else if (option !== 'rw' && !IGNORED_MODES.has(option)) throw invalid(`invalid mode: ${mode}`);
  }
  if (!isAbsolute(source)) {
    if (!VOLUME_NAME.test(source)) {
      throw invalid(`create ${source}: "${source}" includes invalid characters for a local volume name, only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed. If you intended to pass a host directory, use absolute path`);
    }
    return volumePoint(source, destination, mode === '' ? 'z' : mode, writable, driver);
  }
  return { Type: 'bind', Source: normalize(source), Destination: destination, Mode: mode, RW: writable, Propagation: propagation || 'rprivate' };
}

function fromMount(request: MountRequest): MountPoint {
  const where = `invalid mount config for type "${request.Type}"`;
  if (request.Target === '') throw invalid(`${where}: field Target must not be empty`);
  const destination = checkTarget(request.Target, request.Target);
  const writable = request.ReadOnly !== true;
  switch (request.Type) {
    case 'bind': {
      const source = request.Source ?? '';
      if (source === '') throw invalid(`${where}: field Source must not be empty`);
      if (!isAbsolute(source)) throw invalid(`${where}: invalid mount path: '${source}' mount path must be absolute`);
      const propagation = request.BindOptions?.Propagation || 'rprivate';
      if (!PROPAGATIONS.has(propagation)) throw invalid(`${where}: invalid propagation mode: ${propagation}`);
      return { Type: 'bind', Source: normalize(source), Destination: destination, Mode: '', RW: writable, Propagation: propagation };
    }
    case 'volume': {
      const name = request.Source || newVolumeName();
      if (!VOLUME_NAME.test(name)) throw invalid(`${where}: create ${name}: "${name}" includes invalid characters for a local volume name, only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed`);
      return volumePoint(name, destination, 'z', writable, request.VolumeOptions?.DriverConfig?.Name ?? '');
    }
    case 'tmpfs':
      if (request.Source) throw invalid(`${where}: field Source must not be specified`);
      return { Type: 'tmpfs', Source: '', Destination: destination, Mode: '', RW: writable, Propagation: '' };
    default:
      throw invalid(`mount type unknown: "${request.Type}"`);
  }
}

function volumePoint(name: string, destination: string, mode: string, writable: boolean, driver: string): MountPoint {
  return { Type: 'volume', Name: name, Source: '', Destination: destination, Driver: driver || 'local', Mode: mode, RW: writable, Propagation: '' };
}

function checkTarget(target: string, spec: string): string {
  if (!isAbsolute(target)) throw invalid(`invalid volume specification: '${spec}': invalid mount config for type "bind": invalid mount path: '${target}' mount path must be absolute`);
  const clean = normalize(target).replace(/\/$/, '');
  if (clean === '') throw invalid(`invalid volume specification: '${spec}': invalid specification: destination can't be '/'`);
  return clean;
}
