/**
 * An additional process in a running container, as readers see it. The record is in memory only, because the process
 * ends with its container.
 */

export interface ExecConfig {
  readonly AttachStdin: boolean;
  readonly AttachStdout: boolean;
  readonly AttachStderr: boolean;
  readonly Tty: boolean;
  readonly Cmd: readonly string[];
  readonly Env: readonly string[];
  readonly Privileged: boolean;
  readonly User: string;
  readonly WorkingDir: string;
  readonly DetachKeys: string;
  /** Height and width; null before API 1.42, or when the client named none. */
  readonly ConsoleSize: readonly [number, number] | null;
}

export interface ExecRecord {
  /** Id of 64 hex digits. */
  readonly id: string;
  readonly containerId: string;
  readonly config: ExecConfig;
  readonly running: boolean;
  /** The exit code; null until the process has exited. */
  readonly exitCode: number | null;
  readonly pid: number;
}
