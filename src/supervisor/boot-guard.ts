/**
 * Ends a containerd that has not booted yet when the daemon dies. containerd 1.7 and 2 delete, while they boot, the
 * tasks whose process has ended; only the daemon, which listens to the shims until then, can still tell their exit
 * codes. Without it they must not boot: the next daemon asks the shims first, and starts containerd after that.
 *
 * The guard is a shell, because it has to outlive us. Its input is a pipe that ends with us; a line on it means that
 * containerd has booted, and ends the guard.
 */
import { spawn } from 'node:child_process';

const SCRIPT = 'read -r line || kill -KILL "$1"';

/** Guards a process; returns the function that ends the guard, which may be called twice. */
export function guardBoot(pid: number): () => void {
  const guard = spawn('sh', ['-c', SCRIPT, 'boot-guard', String(pid)], {
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
    // A signal to the group of the daemon, as from a terminal, must not end it before us.
    detached: true,
  });
  // Without a shell there is no guard; containerd runs all the same.
  guard.on('error', () => undefined);
  guard.stdin.on('error', () => undefined);
  guard.unref();
  return () => guard.stdin.end('booted\n');
}
