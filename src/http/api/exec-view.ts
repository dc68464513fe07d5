/** Execs as the Engine API shows them. */
import type { ExecRecord } from '../../actors/exec/exec.record.js';
import { invalid } from '../../errors/engine-error.js';
import { parseDetachKeys } from '../../logs/attach/detach-keys.js';

/** Returns the bytes of keys such as `ctrl-p,ctrl-q`. Throws `invalid`. */
export function detachKeys(text: string): Buffer {
  return parseDetachKeys(text, (bad) => invalid(`Invalid escape keys (${bad}) provided`));
}

export function execView(record: ExecRecord): unknown {
  const { config } = record;
  const [entrypoint = '', ...args] = config.Cmd;
  return {
    ID: record.id,
    Running: record.running,
    ExitCode: record.exitCode,
    ProcessConfig: {
      tty: config.Tty,
      entrypoint,
      arguments: args,
      privileged: config.Privileged,
      ...(config.User ? { user: config.User } : {}),
    },
    OpenStdin: config.AttachStdin,
    OpenStderr: config.AttachStderr,
    OpenStdout: config.AttachStdout,
    CanRemove: record.exitCode !== null,
    ContainerID: record.containerId,
    DetachKeys: config.DetachKeys === '' ? '' : detachKeys(config.DetachKeys).toString('base64'),
    Pid: record.pid,
  };
}
