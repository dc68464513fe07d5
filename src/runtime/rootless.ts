/** Fits specifications of containers to a daemon of an ordinary user. */
import { existsSync } from 'node:fs';
import type { OciSpec } from '../ports/supervisor.js';
import type { HostFacts } from './host-facts.js';
import type { OciMount, OciNamespace, OciProcess } from './oci-types.js';

/** File systems of the kernel that only the owner of a namespace may mount, and the namespace of each. */
const OF_NAMESPACES: readonly (readonly [destination: string, namespace: OciNamespace['type']])[] = [
  ['/proc', 'pid'],
  ['/dev/mqueue', 'ipc'],
];

interface FittedParts {
  readonly process: Pick<OciProcess, 'args' | 'oomScoreAdj'>;
  readonly mounts: readonly OciMount[];
  readonly linux: { readonly namespaces: readonly OciNamespace[]; readonly cgroupsPath: string };
}

/**
 * Returns a specification with what the kernel would refuse to an ordinary user left out: control groups that nobody
 * delegated, a score that protects from the out-of-memory killer, mounts for namespaces that are the machine's. Root's
 * daemon gets it back as it is.
 */
export function fitToUser(spec: OciSpec & FittedParts, { rootless, lowestOomScore }: HostFacts): OciSpec {
  if (!rootless) return spec;
  const { process, mounts, linux } = spec;
  const shared = OF_NAMESPACES.filter(([, type]) => !linux.namespaces.some((namespace) => namespace.type === type));
  const { cgroupsPath, ...others } = linux;
  return {
    ...spec,
    process: fitScore(process, lowestOomScore),
    mounts: mounts.flatMap((mount) => {
      if (mount.type === 'bind' || !shared.some(([destination]) => destination === mount.destination)) return [mount];
      // A machine need not have mounted its message queues.
      if (!existsSync(mount.destination)) return [];
      return [{ ...mount, type: 'bind', source: mount.destination, options: ['rbind', ...mount.options] }];
    }),
    linux: cgroupsPath === '' ? { ...others, resources: {} } : linux,
  };
}

/** Returns a process whose score is not below the lowest one that this user may set. */
export function fitScore<T extends Pick<OciProcess, 'oomScoreAdj'>>(process: T, lowestOomScore: number): T {
  const { oomScoreAdj } = process;
  return oomScoreAdj === undefined || oomScoreAdj >= lowestOomScore
    ? process
    : { ...process, oomScoreAdj: lowestOomScore };
}
