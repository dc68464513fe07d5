/** containerd's description of a task in the words of the port. */
import type { TaskInfo, TaskStatus } from '../ports/supervisor.js';
import { exitStatus } from './exits/exit-status.js';
import { Status, type Process } from './proto/gen/task_types_pb.js';

const statuses: Record<Status, TaskStatus> = {
  [Status.UNKNOWN]: 'unknown',
  [Status.CREATED]: 'created',
  [Status.RUNNING]: 'running',
  [Status.STOPPED]: 'stopped',
  [Status.PAUSED]: 'paused',
  [Status.PAUSING]: 'pausing',
};

export function taskInfo(process: Process): TaskInfo {
  const { id, pid, stdin, stdout, stderr, terminal } = process;
  const status = statuses[process.status];
  return {
    id,
    pid,
    status,
    ...(status === 'stopped' && { exit: exitStatus(process.exitStatus, process.exitedAt) }),
    stdio: { stdin, stdout, stderr, terminal },
  };
}
