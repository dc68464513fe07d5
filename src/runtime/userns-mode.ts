/** The user namespace mode of a container: whose ids its users have on the host. */
import { invalid } from '../errors/engine-error.js';
import type { HostConfig } from '../ports/container.js';

/** So many ids as a rule: images know numbers up to nobody, 65534. */
const DEFAULT_SIZE = 65_536;
/** As podman has it. The groups of terminals and of programs are below. */
const MIN_SIZE = 1024;
const MAX_SIZE = 2 ** 24;

/**
 * Returns how many ids of its own a container wants (`auto` or `auto:size=N`, as podman has it); undefined when it
 * wants those of all containers or the host's.
 * @param byDefault tells that one that says nothing wants its own.
 * @throws EngineError invalid for any other mode.
 */
export function ownIdCount(mode: string, byDefault = false): number | undefined {
  if (mode === '') return byDefault ? DEFAULT_SIZE : undefined;
  if (mode === 'host') return undefined;
  if (mode === 'auto') return DEFAULT_SIZE;
  if (!mode.startsWith('auto:')) throw invalid(`invalid user namespace mode: ${mode}`);
  let size = DEFAULT_SIZE;
  for (const option of mode.slice('auto:'.length).split(',')) {
    const [name, value = ''] = option.split('=');
    if (name !== 'size' || option.split('=').length > 2)
      throw invalid(`invalid user namespace mode: ${mode}: unknown option ${JSON.stringify(option)}; auto has size=N`);
    size = /^\d{1,9}$/.test(value) ? Number(value) : 0;
    if (size < MIN_SIZE || size > MAX_SIZE)
      throw invalid(`invalid user namespace mode: ${mode}: size must be a number from ${MIN_SIZE} to ${MAX_SIZE}`);
  }
  return size;
}

/** Refuses what a container with users of its own cannot have. @throws EngineError invalid. */
export function checkOwnUsers({ UsernsMode, NetworkMode, PidMode, IpcMode }: HostConfig): void {
  // Its root can do nothing with what belongs to the user namespace of another container, or of the host.
  for (const [name, mode] of [
    ['network', NetworkMode],
    ['PID', PidMode],
    ['IPC', IpcMode],
  ] as const) {
    if (mode === 'host' || mode.startsWith('container:'))
      throw invalid(`conflicting options: user namespace mode ${UsernsMode || 'auto'} and ${name} mode ${mode}`);
  }
}
