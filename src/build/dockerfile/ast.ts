/**
 * A parsed Dockerfile. Values are as they were written: variables are replaced later (expand-instruction.ts), because
 * what they stand for depends on the arguments of the build and on the instructions before.
 */

/** Lines of the Dockerfile, counted from 1; both are part of it. */
export interface LineRange {
  readonly start: number;
  readonly end: number;
}

/** A comment at the top of the file that means something: `# syntax=`, `# escape=` or `# check=`. */
export interface Directive {
  readonly value: string;
  readonly line: number;
}

export interface Directives {
  readonly syntax: Directive | undefined;
  readonly escape: Directive | undefined;
  readonly check: Directive | undefined;
}

export interface Heredoc {
  readonly name: string;
  /** All lines with their ends, as they were written: leading tabs are still there when `chomp` is set. */
  readonly content: string;
  /** No part of the name was quoted: variables in the content of COPY and ADD are replaced. */
  readonly expand: boolean;
  /** Written `<<-`: leading tabs of each line do not count. `chompHeredoc` removes them. */
  readonly chomp: boolean;
  readonly fd: number;
}

/** Every instruction has these. */
interface Common {
  /** The keyword as it was written, such as `Run`. */
  readonly keyword: string;
  /** The instruction in one line: continuations joined, heredocs left out. */
  readonly original: string;
  readonly lines: LineRange;
  /** The lines of comment right before it, without their marks. */
  readonly comments: readonly string[];
}

export interface KeyValue {
  readonly key: string;
  readonly value: string;
  /** Written `KEY value`, without the sign. */
  readonly isLegacy: boolean;
}

export interface ArgDefinition {
  readonly key: string;
  /** undefined: there is no default. */
  readonly value: string | undefined;
  /** From the comment before it. */
  readonly description: string;
}

/** A command line of RUN, CMD or ENTRYPOINT. */
export interface CommandLine {
  /** In shell form one string, which the shell of the stage gets; else the arguments. */
  readonly args: readonly string[];
  readonly isShellForm: boolean;
  readonly heredocs: readonly Heredoc[];
}

/** The files of COPY and ADD. */
export interface SourcesAndDestination {
  readonly sources: readonly string[];
  /** Files that are written in the Dockerfile itself; tabs are removed already where `<<-` asks for it. */
  readonly inlineFiles: readonly InlineFile[];
  readonly destination: string;
}

export interface InlineFile {
  readonly name: string;
  readonly content: string;
  readonly expand: boolean;
}

export type MountType = 'bind' | 'cache' | 'tmpfs' | 'secret' | 'ssh';

/** One `--mount` of RUN. Members are undefined or empty where nothing is said. */
export interface RunMount {
  readonly type: MountType;
  readonly from: string;
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
  /** In bytes, of tmpfs; 0 is no limit. */
  readonly size: number;
  readonly id: string;
  readonly sharing: 'shared' | 'private' | 'locked' | undefined;
  readonly required: boolean;
  /** The variable that gets a secret. */
  readonly env: string | undefined;
  readonly mode: number | undefined;
  readonly uid: number | undefined;
  readonly gid: number | undefined;
}

/** A mount of which nothing is said: files of the context, read-only. */
export const PLAIN_MOUNT: RunMount = {
  type: 'bind',
  from: '',
  source: '',
  target: '',
  readOnly: true,
  size: 0,
  id: '',
  sharing: undefined,
  required: false,
  env: undefined,
  mode: undefined,
  uid: undefined,
  gid: undefined,
};

export interface RunDevice {
  readonly name: string;
  readonly required: boolean;
}

/** Times are nanoseconds, as in an image's configuration; 0 inherits. */
export interface HealthcheckValue {
  /** `['NONE']`, `['CMD', …]` or `['CMD-SHELL', line]`. */
  readonly test: readonly string[];
  readonly interval: number;
  readonly timeout: number;
  readonly startPeriod: number;
  readonly startInterval: number;
  readonly retries: number;
}

export interface ArgInstruction extends Common {
  readonly kind: 'ARG';
  readonly args: readonly ArgDefinition[];
}
export interface EnvInstruction extends Common {
  readonly kind: 'ENV';
  readonly pairs: readonly KeyValue[];
}
export interface LabelInstruction extends Common {
  readonly kind: 'LABEL';
  readonly pairs: readonly KeyValue[];
}
export interface RunInstruction extends Common {
  readonly kind: 'RUN';
  readonly command: CommandLine;
  /** The values of `--mount` as they were written. */
  readonly mountTexts: readonly string[];
  /** Where each mount is from, which is known without variables; empty where nothing is said. */
  readonly mountFroms: readonly string[];
  /** Set by expanding the instruction; before, it is empty. */
  readonly mounts: readonly RunMount[];
  readonly network: 'default' | 'none' | 'host';
  readonly security: 'sandbox' | 'insecure';
  readonly devices: readonly RunDevice[];
  /** Names of the flags that are there, such as `mount`. */
  readonly flags: readonly string[];
}
export interface CmdInstruction extends Common {
  readonly kind: 'CMD';
  readonly command: CommandLine;
}
export interface EntrypointInstruction extends Common {
  readonly kind: 'ENTRYPOINT';
  readonly command: CommandLine;
}
export interface ExposeInstruction extends Common {
  readonly kind: 'EXPOSE';
  readonly ports: readonly string[];
}
export interface CopyFlags extends SourcesAndDestination {
  readonly chown: string;
  readonly chmod: string;
  readonly link: boolean;
  readonly exclude: readonly string[];
  /** Names of the flags that are there, such as `chmod`. */
  readonly flags: readonly string[];
}
export interface AddInstruction extends Common, CopyFlags {
  readonly kind: 'ADD';
  readonly checksum: string;
  readonly keepGitDir: boolean | undefined;
  readonly unpack: boolean | undefined;
}
export interface CopyInstruction extends Common, CopyFlags {
  readonly kind: 'COPY';
  /** A stage's name or index, an image, or a named context; empty is the context of the build. */
  readonly from: string;
  readonly parents: boolean;
}
export interface VolumeInstruction extends Common {
  readonly kind: 'VOLUME';
  readonly volumes: readonly string[];
}
export interface UserInstruction extends Common {
  readonly kind: 'USER';
  readonly user: string;
}
export interface WorkdirInstruction extends Common {
  readonly kind: 'WORKDIR';
  readonly path: string;
}
export interface OnbuildInstruction extends Common {
  readonly kind: 'ONBUILD';
  /** The instruction that runs in a later build, with its heredocs. `parseTrigger` reads it. */
  readonly expression: string;
}
export interface StopsignalInstruction extends Common {
  readonly kind: 'STOPSIGNAL';
  readonly signal: string;
}
export interface HealthcheckInstruction extends Common {
  readonly kind: 'HEALTHCHECK';
  readonly healthcheck: HealthcheckValue;
}
export interface ShellInstruction extends Common {
  readonly kind: 'SHELL';
  readonly shell: readonly string[];
}
export interface MaintainerInstruction extends Common {
  readonly kind: 'MAINTAINER';
  readonly maintainer: string;
}

/** An instruction of a stage: all but FROM. */
export type Instruction =
  | ArgInstruction
  | EnvInstruction
  | LabelInstruction
  | RunInstruction
  | CmdInstruction
  | EntrypointInstruction
  | ExposeInstruction
  | AddInstruction
  | CopyInstruction
  | VolumeInstruction
  | UserInstruction
  | WorkdirInstruction
  | OnbuildInstruction
  | StopsignalInstruction
  | HealthcheckInstruction
  | ShellInstruction
  | MaintainerInstruction;

/** FROM and what follows it. */
export interface Stage extends Common {
  readonly index: number;
  /** In lower case; empty when the stage has none. */
  readonly name: string;
  /** The name as it was written. */
  readonly writtenName: string;
  /** The word before the name as it was written, such as `AS`; empty without a name. */
  readonly asKeyword: string;
  /** An image, an earlier stage, a named context or `scratch`, with variables. */
  readonly base: string;
  /** With variables; empty when there is none. */
  readonly platform: string;
  /** From the comment before it. */
  readonly description: string;
  readonly instructions: readonly Instruction[];
}

export interface Dockerfile {
  readonly text: string;
  readonly directives: Directives;
  readonly escape: '\\' | '`';
  /** The ARGs before the first stage. */
  readonly globalArgs: readonly ArgInstruction[];
  readonly stages: readonly Stage[];
  /** The last lines of instructions with an empty line among their continuations, for the checks. */
  readonly emptyContinuations: readonly number[];
}
