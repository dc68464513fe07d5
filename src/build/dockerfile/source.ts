/** The readers of single instructions share these. */
import type { CommandLine, Heredoc, LineRange } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import type { Features } from './features.js';
import { Flags } from './flags.js';
import type { Node } from './nodes.js';
import { jsonStrings, splitBlanks } from './words.js';

export interface Common {
  readonly keyword: string;
  readonly original: string;
  readonly lines: LineRange;
  readonly comments: readonly string[];
}

/** A reader gets the instruction, and what it may use. */
export interface Source {
  readonly node: Node;
  readonly common: Common;
  readonly escape: '\\' | '`';
  readonly features: Features;
}

/** Throws about any flag. */
export function noFlags(node: Node): void {
  void new Flags(node.flags);
}

/** Arguments in JSON, or one line for a shell. */
export function commandOf(text: string, heredocs: readonly Heredoc[]): CommandLine {
  const json = jsonStrings(text);
  if (json !== undefined) return { args: json, isShellForm: false, heredocs };
  return { args: text === '' ? [] : [text], isShellForm: true, heredocs };
}

export function atLeastOne(command: string): Error {
  return new DockerfileError(`${command} requires at least one argument`);
}

/** A JSON array, or words between blanks. */
export function listOf(text: string): string[] {
  return jsonStrings(text) ?? (text === '' ? [] : splitBlanks(text));
}
