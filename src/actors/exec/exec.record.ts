/** An additional process in a running container, as readers see it. In memory only: it ends with its container. */

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
  /** Height and width; null before 1.42 or when the client did not say. */
  readonly ConsoleSize: readonly [number, number] | null;
}

export interface ExecRecord {
  /** 64 hex digits. */
  readonly id: string;
  readonly containerId: string;
  readonly config: ExecConfig;
  readonly running: boolean;
  /** Null until it exited. */
  readonly exitCode: number | null;
  readonly pid: number;
}
