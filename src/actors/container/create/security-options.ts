/** The SELinux options of a container: those that its client gave, else those that follow from what it shares. */
import { invalid } from '../../../errors/engine-error.js';
import type { HostConfig } from '../../../ports/container.js';
import { optionsOf } from '../../../runtime/selinux/label-options.js';
import type { ContainerRecord } from '../container.record.js';

/**
 * Returns the security options with those that were not said: a container that shares namespaces of the host has no
 * label of its own, and one that shares those of another container has the label of that one.
 * @param find gives the container that a mode names.
 * @throws EngineError invalid when two containers are joined whose labels differ.
 */
export function withLabelOptions(
  { SecurityOpt, Privileged, IpcMode, PidMode }: Pick<HostConfig, 'SecurityOpt' | 'Privileged' | 'IpcMode' | 'PidMode'>,
  find: (id: string) => Pick<ContainerRecord, 'labels'>,
): HostConfig['SecurityOpt'] {
  if (SecurityOpt?.some((option) => /^label[=:]/.test(option)) === true) return SecurityOpt;
  if (Privileged || IpcMode === 'host' || PidMode === 'host') return [...(SecurityOpt ?? []), 'label=disable'];
  const [ipc, pid] = [IpcMode, PidMode].map((mode) => labelOptions(mode, find));
  if (ipc && pid && ipc.join() !== pid.join())
    throw invalid("--ipc and --pid containers SELinux labels aren't the same");
  const shared = ipc ?? pid;
  return shared ? [...(SecurityOpt ?? []), ...shared] : SecurityOpt;
}

function labelOptions(mode: string, find: (id: string) => Pick<ContainerRecord, 'labels'>): string[] | undefined {
  if (!mode.startsWith('container:')) return undefined;
  const options = optionsOf(find(mode.slice('container:'.length)).labels?.processLabel);
  return options.length === 0 ? undefined : options;
}
