/** Contract of the container supervisor (containerd): containers, tasks, processes and their events. */
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Content } from './content.js';
import type { Owner } from './id-maps.js';
import type { LogLedger } from './logs.js';
import type { Snapshots } from './snapshots.js';

/** A JSON object of the OCI runtime specification. */
export type OciSpec = Record<string, unknown>;

/** The runtime that a container was created with, resolved from the daemon's runtimes. */
export interface RuntimeChoice {
  /** Shim name or path, `io.containerd.runc.v2` for the reference runtime and its drop-ins. */
  readonly type: string;
  /** Drop-in binary for the runc shim. Default: `runc` on PATH. */
  readonly binaryName?: string;
  readonly systemdCgroup?: boolean;
  /** Set on hosts whose root is a RAM disk, because the runtime cannot pivot away from that. */
  readonly noPivotRoot?: boolean;
  /**
   * True when a shim that has served other tasks may serve its tasks: nothing is set for the shim alone, and the
   * runtime does not mind in which directory it is called.
   */
  readonly takesAnyShim?: boolean;
  /** More options of the runc shim. */
  readonly runc?: RuncOptions;
  /** The options of other shims are `TypeUrl`, `ConfigPath`, and members that only the shim itself knows. */
  readonly options?: Readonly<Record<string, unknown>>;
}

/** These options go to the runc shim as well; if a member is absent, the value of the daemon or the shim applies. */
export interface RuncOptions {
  /** The runtime keeps its state in this directory. */
  readonly root?: string;
  readonly noNewKeyring?: boolean;
  readonly shimCgroup?: string;
  readonly ioUid?: number;
  readonly ioGid?: number;
  readonly criuImagePath?: string;
  readonly criuWorkPath?: string;
}

export interface CreateTask {
  /** 64 hex digits. */
  readonly id: string;
  readonly spec: OciSpec;
  readonly runtime: RuntimeChoice;
  readonly labels?: Readonly<Record<string, string>>;
  readonly stdio: StdioPaths;
  /** This owner may open the pipes between shim and processes anew. Default: root. */
  readonly ioOwner?: Owner | undefined;
  /**
   * The task whose shim serves this one as well, where the runtime is runc or a replacement of it. That one must not be
   * deleted before this one is made. Default: it gets its own.
   */
  readonly shimOf?: string | undefined;
}

export interface CreatedTask {
  readonly pid: number;
  /** Its shim serves other tasks when this one is deleted, without `shimOf`. */
  readonly hasReusedShim: boolean;
}

/** FIFO paths handed to the shim. Empty string: not wanted. With a terminal `stderr` is ''. */
export interface StdioPaths {
  readonly stdin: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly terminal: boolean;
}

export interface ExitStatus {
  readonly exitCode: number;
  /** The time has milliseconds. */
  readonly exitedAt: Date;
}

export type TaskStatus = 'created' | 'running' | 'stopped' | 'paused' | 'pausing' | 'unknown';

export interface TaskInfo {
  readonly id: string;
  readonly pid: number;
  readonly status: TaskStatus;
  readonly exit?: ExitStatus;
  /** Nobody but the shim knows of its end: that, too, when the task was made and never started. */
  readonly isUnwitnessed?: boolean;
  readonly stdio: StdioPaths;
}

/** Facts about tasks, in the order in which containerd reports them. */
export type TaskEvent =
  | {
      readonly type: 'exit';
      readonly id: string;
      readonly execId: string;
      readonly pid: number;
      readonly exit: ExitStatus;
    }
  | { readonly type: 'oom'; readonly id: string }
  | { readonly type: 'paused' | 'resumed'; readonly id: string };

export interface ExecProcess {
  /** OCI `process` object. */
  readonly process: Record<string, unknown>;
  readonly stdio: StdioPaths;
}

/**
 * Tasks in one containerd namespace. Every method throws EngineError; a runtime failure keeps the runtime's own text
 * (without the trailing `: unknown`) in `message` and has `details.runtimeError = true`.
 */
export interface TaskService {
  /**
   * Creates the container and its task (runc create). Its exit is watched before the first instruction runs. It cannot
   * be cancelled. On failure nothing is left in the supervisor.
   */
  create(request: CreateTask): Promise<CreatedTask>;
  /** Starts a created task; resolves when the runtime has returned. The exit event may arrive first. */
  start(id: string): Promise<void>;
  /**
   * Sends a signal to init, or with `all` to every process of the cgroup. Throws not-found when the process is gone.
   */
  kill(id: string, signal: number, options?: { readonly all?: boolean; readonly execId?: string }): Promise<void>;
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  resize(id: string, size: { readonly width: number; readonly height: number }, execId?: string): Promise<void>;
  /** Closes the shim's write end of stdin. Call it after our own end was closed. */
  closeStdin(id: string, execId?: string): Promise<void>;
  /** Runs another process in a task; resolves when the runtime has returned. On failure nothing is left of it. */
  exec(id: string, execId: string, process: ExecProcess): Promise<{ pid: number }>;
  deleteExec(id: string, execId: string): Promise<void>;
  /** Returns the host pids of all processes of the task. */
  pids(id: string): Promise<number[]>;
  /** Sets limits. @param resources OCI `LinuxResources`. */
  update(id: string, resources: Record<string, unknown>): Promise<void>;
  /** Deletes task and container, in that order. Idempotent. Call it only after output was drained. */
  delete(id: string): Promise<void>;
  /**
   * Returns all tasks that the supervisor knows, for reconciliation at start and after a reconnect. It asks for a
   * minute for the state of one whose shim does not answer. @param isEnough tells of which tasks it is enough that they
   * are there: their state is `unknown` then, and nothing is known of their pipes.
   */
  list(isEnough?: (id: string) => boolean): Promise<TaskInfo[]>;
  /** Does the same for one task. @param mayBeUnknown as `isEnough`. */
  get(id: string, mayBeUnknown?: boolean): Promise<TaskInfo | undefined>;
  /** Returns cgroup statistics of the task (decoded `io.containerd.cgroups.v1|v2.Metrics`). */
  metrics(id: string): Promise<unknown>;
  /**
   * Subscribes to task events of this namespace. Returns a function that ends this. Each exit is reported at least
   * once.
   */
  onEvent(listener: (event: TaskEvent) => void): () => void;
  /** Returns the version of containerd and its revision. */
  version(): Promise<{ version: string; revision: string }>;
}

/** The life of the supervisor process, or of the connection to an external one. */
export interface SupervisorProcess {
  /** Resolves when the gRPC endpoint answers; throws unavailable with containerd's last log lines when it does not. */
  start(): Promise<void>;
  /** Stops the child (not an external one), unless it shall stay with its tasks; running shims stay in any case. */
  stop(options?: { readonly leavesTasks?: boolean }): Promise<void>;
  readonly tasks: TaskService;
  /** Returns the snapshots of one of its snapshotters. */
  snapshots(snapshotter: string): Snapshots;
  readonly content: Content;
  /** Process id of the child; undefined for an external one and while the child is down. */
  readonly pid: number | undefined;
  /**
   * Calls the listener with `degraded` when the endpoint does not answer, and with `ready` when it was reconciled
   * again.
   */
  onState(listener: (state: 'ready' | 'degraded', reason?: string) => void): () => void;
}

/** Holds what was read of the outputs of a process where it outlives this daemon. */
export interface OutputSpool {
  /**
   * Keeps the outputs until the log has them. Call it before they are read: they first yield what an earlier daemon
   * had read, and the log has not.
   * @throws EngineError when the log cannot be read.
   */
  begin(ledger: LogLedger): Promise<void>;
  /** True while all that the log may not have is kept. */
  readonly isKeeping: boolean;
  /** Leaves what is kept to the next daemon. Nothing more may be read. */
  leave(): void;
  /** Forgets what is kept: the log has it. */
  remove(): void;
}

/** The daemon's ends of a process's FIFOs. */
export interface ProcessStdio {
  readonly paths: StdioPaths;
  /**
   * Open from before the task is created until its writer is gone ('end'). Undefined if it is not wanted. It emits
   * 'flood' while much comes, and its output is kept.
   */
  readonly stdout: Readable | undefined;
  readonly stderr: Readable | undefined;
  /** Keeps what was read of them until it is logged. Undefined when they are of a process whose output is not kept. */
  readonly spool?: OutputSpool | undefined;
  /** Opens the write end; call it after tasks.Create (init) or tasks.Start (exec). */
  openStdin(): Promise<Socket | undefined>;
  /** Resolves with true when stdout and stderr have ended, with false when they have not within this time. */
  drained(timeoutMs: number): Promise<boolean>;
  /** Destroys what is open and removes the FIFOs. Idempotent. */
  close(): Promise<void>;
}
