/** Reads exit statuses as containerd reports them. */
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import type { ExitStatus } from '../../ports/supervisor.js';

/** containerd reports this code when nobody saw how a process ended. */
export const UNKNOWN_EXIT_CODE = 255;

/** An unset time (Go's year 1) becomes now: the process is known to be gone. */
export function exitStatus(exitCode: number, exitedAt: Timestamp | undefined): ExitStatus {
  const seconds = Number(exitedAt?.seconds ?? 0n);
  if (exitedAt === undefined || seconds <= 0) return { exitCode, exitedAt: new Date() };
  return { exitCode, exitedAt: new Date(seconds * 1000 + Math.floor(exitedAt.nanos / 1e6)) };
}
