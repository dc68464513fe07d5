/** The container machine's effects over the drivers. */
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict, EngineError, internal, isEngineError } from '../../errors/engine-error.js';
import type { AttachResult, PortRequest } from '../../ports/network.js';
import type { ContainerEffects, StopInput } from './container.effects.types.js';
import type { ContainerIoRegistry } from './container-io.js';
import { withState, type ContainerRecord, type NetworkAttachment } from './container.record.js';
import type { ContainerDeps } from './deps.js';
import { realizeMounts, removeAnonymousVolumes } from './mounts.js';
import { startError } from './start-error.js';
import { SIGKILL } from './signals.js';
import { now } from './timestamps.js';
import { allDone, Undo } from './undo.js';

/** How long output of a dead container may take to arrive: something outside its pid namespace holds its pipe. */
const DRAIN_LIMIT_MS = 5000;
/** How long an exit may take after SIGKILL before the stop is reported as failed. */
const KILL_LIMIT_MS = 10_000;

export function createContainerEffects(deps: ContainerDeps, ios: ContainerIoRegistry, emitKill: (record: ContainerRecord, signal: number) => void): ContainerEffects {
  const { layers, network, tasks, records } = deps;

  async function create(record: ContainerRecord): Promise<ContainerRecord> {
    const undo = new Undo(deps.log);
    try {
      undo.add('container directory', () => records.remove(record.id));
      undo.add('writable layer', () => layers.removeWritable(record.id));
      await allDone([records.createDir(record.id), layers.createWritable(record.id, record.topLayer)]);
      const made = await realizeMounts(deps, record, undo);
      await records.save(made);
      return made;
    } catch (error) {
      await undo.run();
      throw error;
    }
  }

  async function start(before: ContainerRecord): Promise<ContainerRecord> {
    const undo = new Undo(deps.log);
    const id = before.id;
    try {
      const starting = withState(before, { status: 'starting', startedAt: now(), error: '', oomKilled: false });
      const saved = records.save(starting);
      // Marked as handled: its failure is thrown where it is awaited below.
      saved.catch(() => undefined);
      const [rootfs, netnsPath, io, files] = await allDone([mountRoot(id, undo), sandbox(starting, undo), ios.get(id).open(starting, undo), deps.writeFiles(starting)]);
      const { spec } = await deps.specs.build({
        id,
        name: starting.name.slice(1),
        argv: [starting.path, ...starting.args],
        config: starting.config,
        hostConfig: starting.hostConfig,
        rootfs,
        netnsPath,
        files,
        mounts: starting.mounts,
        cgroupsPath: deps.cgroupsPathFor(starting),
        ...optional('initPath', deps.initPathFor(starting)),
        ...sharedNamespaces(starting),
      });
      const creating = tasks.create({ id, spec, runtime: deps.runtimeFor(starting), stdio: io.paths, labels: {} });
      undo.add('task', () => tasks.delete(id));
      const [{ pid }, attached] = await allDone([creating, attachNetworks(starting, netnsPath, undo)]);
      if (Object.keys(attached.networks).length > 0) await deps.writeFiles(attached);
      await io.started();
      await saved;
      await tasks.start(id);
      const running = withState({ ...attached, logPath: io.logPath }, { status: 'running', pid, exitCode: 0 });
      void records.save(running).catch((error: unknown) => deps.log.error({ err: error, container: id }, 'record not saved'));
      return running;
    } catch (error) {
      await undo.run();
      throw startError(error);
    }
  }

  /** Namespaces of other containers, by way of their init process; with the IPC namespace goes its /dev/shm. */
  function sharedNamespaces({ hostConfig }: ContainerRecord): { joins: Partial<Record<'ipc' | 'pid' | 'uts', string>>; shmPath?: string } {
    const joins: Partial<Record<'ipc' | 'pid' | 'uts', string>> = {};
    let shmPath: string | undefined;
    for (const [kind, mode] of [['ipc', hostConfig.IpcMode], ['pid', hostConfig.PidMode], ['uts', hostConfig.UTSMode]] as const) {
      if (!mode.startsWith('container:')) continue;
      const other = deps.find(mode.slice('container:'.length));
      if (!other || other.state.pid === 0) throw conflict(`cannot join ${kind.toUpperCase()} namespace of a non running container: ${mode.slice('container:'.length)}`);
      joins[kind] = `/proc/${other.state.pid}/ns/${kind}`;
      if (kind === 'ipc') shmPath = `/proc/${other.state.pid}/root/dev/shm`;
    }
    if (hostConfig.IpcMode === 'host') shmPath = '/dev/shm';
    return { joins, ...optional('shmPath', shmPath) };
  }

  async function mountRoot(id: string, undo: Undo): Promise<string> {
    const rootfs = await layers.mount(id);
    undo.add('root filesystem', () => layers.unmount(id));
    return rootfs;
  }

  async function sandbox(record: ContainerRecord, undo: Undo): Promise<string | undefined> {
    const mode = record.hostConfig.NetworkMode;
    if (mode === 'host') return undefined;
    if (mode.startsWith('container:')) return network.sandboxPath(mode.slice('container:'.length));
    const path = await network.createSandbox(record.id);
    undo.add('network namespace', () => network.removeSandbox(record.id));
    return path;
  }

  async function attachNetworks(record: ContainerRecord, netnsPath: string | undefined, undo: Undo): Promise<ContainerRecord> {
    const networks: Record<string, NetworkAttachment> = {};
    let ports: AttachResult['ports'] = [];
    let index = 0;
    for (const [name, { request }] of Object.entries(record.networks)) {
      if (netnsPath === undefined || network.resolve(name).driver === 'null') {
        networks[name] = { request };
        continue;
      }
      const result = await network.attach({
        containerId: record.id,
        network: name,
        netnsPath,
        interfaceName: `eth${index}`,
        aliases: request.Aliases ?? [],
        dnsNames: [record.name.slice(1), ...(request.Aliases ?? []), record.id.slice(0, 12)],
        // Published ports belong to the first network, which is the container's way out.
        ports: index === 0 ? wantedPorts(record) : [],
        ...optional('macAddress', request.MacAddress || record.config.MacAddress || undefined),
        ...optional('ipv4', request.IPAMConfig?.IPv4Address || undefined),
        ...optional('ipv6', request.IPAMConfig?.IPv6Address || undefined),
        ...optional('gatewayPriority', request.GwPriority),
        ...optional('nameservers', record.hostConfig.Dns ?? undefined),
      });
      undo.add('network endpoint', () => network.detach(record.id, result.endpoint, result.ports));
      deps.emit('network', 'connect', result.endpoint.networkId, { container: record.id, name, type: network.resolve(name).driver });
      networks[name] = { request, endpoint: result.endpoint };
      ports = [...ports, ...result.ports];
      index++;
    }
    return { ...record, networks, ports };
  }

  async function adopt(record: ContainerRecord): Promise<ContainerRecord> {
    const task = await tasks.get(record.id);
    if (!task) throw internal(`task ${record.id} is gone`);
    await layers.mount(record.id);
    await ios.get(record.id).reopen(record, task.stdio);
    const endpoints = Object.values(record.networks).flatMap(({ endpoint }) => (endpoint ? [endpoint] : []));
    for (const [index, endpoint] of endpoints.entries()) await network.adopt(record.id, endpoint, index === 0 ? record.ports : [], record.hostConfig.Dns ?? undefined);
    return withState(record, { status: task.status === 'paused' ? 'paused' : 'running', pid: task.pid });
  }

  async function stop({ record, signal, timeoutSeconds }: StopInput, aborted: AbortSignal): Promise<void> {
    if (!(await deliver(record, signal))) return untilAborted(aborted);
    if (record.state.status === 'paused') await tasks.resume(record.id).catch(ignoreGone);
    if (timeoutSeconds < 0) return untilAborted(aborted);
    if (signal !== SIGKILL) {
      await sleep(timeoutSeconds * 1000, undefined, { signal: aborted, ref: false });
      await deliver(record, SIGKILL);
    }
    await sleep(KILL_LIMIT_MS, undefined, { signal: aborted, ref: false });
    throw internal(`cannot stop container: ${record.id}: tried to kill container, but did not receive an exit event`);
  }

  /** False when there was nothing left to signal: the exit is on its way. */
  async function deliver(record: ContainerRecord, signal: number): Promise<boolean> {
    emitKill(record, signal);
    try {
      await tasks.kill(record.id, signal);
      return true;
    } catch (error) {
      if (isEngineError(error, 'not-found')) return false;
      throw error;
    }
  }

  async function release(record: ContainerRecord): Promise<ContainerRecord> {
    const released: ContainerRecord = {
      ...record,
      ports: [],
      networks: Object.fromEntries(Object.entries(record.networks).map(([name, { request }]) => [name, { request }])),
    };
    // The exit status must be durable before the supervisor forgets it; addresses may go meanwhile.
    const networkGone = releaseNetwork(record);
    networkGone.catch(() => undefined);
    await records.save(released);
    const results = await Promise.allSettled([networkGone, tasks.delete(record.id).then(() => ios.get(record.id).close()), layers.unmount(record.id)]);
    for (const result of results) {
      if (result.status === 'rejected') deps.log.error({ err: result.reason, container: record.id }, 'releasing a stopped container');
    }
    return released;
  }

  async function releaseNetwork(record: ContainerRecord): Promise<void> {
    for (const [name, { endpoint }] of Object.entries(record.networks)) {
      if (!endpoint) continue;
      await network.detach(record.id, endpoint, record.ports);
      deps.emit('network', 'disconnect', endpoint.networkId, { container: record.id, name, type: 'bridge' });
    }
    if (ownsSandbox(record)) await network.removeSandbox(record.id);
  }

  return {
    create,
    start,
    adopt,
    stop,
    pause: (record) => tasks.pause(record.id),
    unpause: (record) => tasks.resume(record.id),
    drain: (record) => ios.get(record.id).drained(DRAIN_LIMIT_MS),
    release,
    async remove({ record, options }) {
      await records.remove(record.id);
      const results = await Promise.allSettled([
        layers.removeWritable(record.id),
        record.topLayer === undefined ? undefined : layers.release(record.topLayer),
        ios.remove(record.id),
        options.volumes ? removeAnonymousVolumes(deps, record) : undefined,
      ]);
      for (const result of results) {
        if (result.status === 'rejected') deps.log.error({ err: result.reason, container: record.id }, 'removing a container');
      }
    },
    save: (record) => records.save(record),
  };
}

function ownsSandbox(record: ContainerRecord): boolean {
  const mode = record.hostConfig.NetworkMode;
  return mode !== 'host' && !mode.startsWith('container:');
}

function wantedPorts(record: ContainerRecord): PortRequest[] {
  const wanted: PortRequest[] = [];
  /** `hostPort`: '' is any, `8000-8010` the first free one of these. */
  const add = (key: string, hostIp: string, hostPort: string): void => {
    const [port = '', protocol = 'tcp'] = key.split('/');
    const [first = '', last] = hostPort.split('-');
    wanted.push({ containerPort: Number(port), protocol: protocol as 'tcp' | 'udp' | 'sctp', hostIp, hostPort: Number(first), ...optional('hostPortEnd', last === undefined ? undefined : Number(last)) });
  };
  const bindings = record.hostConfig.PortBindings ?? {};
  for (const [key, list] of Object.entries(bindings)) {
    for (const { HostIp, HostPort } of list ?? []) add(key, HostIp, HostPort);
  }
  if (record.hostConfig.PublishAllPorts) {
    for (const key of Object.keys(record.config.ExposedPorts ?? {})) if (!bindings[key]?.length) add(key, '', '');
  }
  return wanted;
}

function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}

function ignoreGone(error: unknown): void {
  if (!(error instanceof EngineError) || error.kind !== 'not-found') throw error;
}

/** The exit leaves the state and so ends the wait. */
function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }));
}
