/** Checks kernel parameters: a container may set those that its own namespaces keep apart from the host. */
import { invalid } from '../errors/engine-error.js';
import type { HostConfig } from '../ports/container.js';

const IPC = new Set([
  'kernel.msgmax',
  'kernel.msgmnb',
  'kernel.msgmni',
  'kernel.sem',
  'kernel.shmall',
  'kernel.shmmax',
  'kernel.shmmni',
  'kernel.shm_rmid_forced',
]);

/** Checks the parameters. @throws EngineError invalid, in the words with which the runtime would fail at the start. */
export function checkSysctls({ Sysctls = {}, IpcMode, NetworkMode, UTSMode }: HostConfig): void {
  for (const [given, value] of Object.entries(Sysctls)) {
    const name = given.replaceAll('/', '.');
    if (!/^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)+$/.test(name) || value.includes('\0'))
      throw invalid(`invalid sysctl ${JSON.stringify(given)}`);
    if (name === 'kernel.hostname')
      throw invalid(`sysctl ${JSON.stringify(name)} is not allowed as it conflicts with the OCI "hostname" field`);
    if (IPC.has(name) || name.startsWith('fs.mqueue.')) {
      if (IpcMode === 'host') throw invalid(`sysctl ${JSON.stringify(name)} is not allowed in the hosts ipc namespace`);
    } else if (name.startsWith('net.')) {
      if (NetworkMode === 'host') throw invalid(`sysctl ${JSON.stringify(name)} not allowed in host network namespace`);
    } else if (name !== 'kernel.domainname' || UTSMode === 'host') {
      throw invalid(`sysctl ${JSON.stringify(name)} is not in a separate kernel namespace`);
    }
  }
}
