/** Everything that can be said to an exec actor. */
import type { Command, RequestCancelled } from '../kit/commands.js';
import type { EffectHung } from '../kit/effect.js';
import type { ExitStatus } from '../../ports/supervisor.js';

export interface TerminalSize {
  readonly width: number;
  readonly height: number;
}

export type ExecCommand =
  /** This is answered when the process runs. `size` is the terminal's, when it has one. */
  | (Command<'exec.start'> & { readonly tty: boolean; readonly size: TerminalSize | undefined })
  /** This is answered when the process has ended and its output was read. */
  | Command<'exec.wait', number>
  | (Command<'exec.resize'> & { readonly size: TerminalSize });

export type ExecFact = { readonly type: 'exec.exited'; readonly exit: ExitStatus };

export type ExecEvent = ExecCommand | ExecFact | EffectHung | RequestCancelled;
