/** The words of the process of a RUN, and how its step is called. */
import type { RunInstruction } from '../../../build/dockerfile/ast.js';
import { chompHeredoc, heredocMark } from '../../../build/dockerfile/heredocs.js';

/** Files of a RUN that are programs themselves are mounted below. */
const PIPES = '/dev/pipes';

export interface RunWords {
  /** The command line without the shell of the stage. */
  readonly args: readonly string[];
  /** A program that the instruction has in itself: its name and content. It is mounted read-only. */
  readonly program: { readonly path: string; readonly content: string } | undefined;
  /** Follows the instruction in the name of its step; empty when there is nothing to add. */
  readonly summary: string;
}

/** Returns what a RUN runs: a heredoc alone is a script or a program, others belong to the command line. */
export function runWords({ command }: RunInstruction): RunWords {
  const { args, heredocs } = command;
  const [line = ''] = args;
  const [first] = heredocs;
  if (first === undefined) return { args, program: undefined, summary: '' };
  const isAlone = heredocs.length === 1 && heredocMark(line.trim()) !== undefined;
  if (!isAlone) {
    const texts = heredocs.map(({ content, name }) => `\n${content}${name}`);
    return { args: [line + texts.join('')], program: undefined, summary: '' };
  }
  const { name, chomp } = first;
  const content = chomp ? chompHeredoc(first.content) : first.content;
  const summary = ` (${summaryOf(content)})`;
  // The mark of a program is looked for before the tabs are gone, as the known builder does it.
  if (!first.content.startsWith('#!')) return { args: [content], program: undefined, summary };
  const path = `${PIPES}/${name}`;
  return { args: [path], program: { path, content }, summary };
}

function summaryOf(content: string): string {
  const text = content.trim();
  const end = text.indexOf('\n');
  return end < 0 ? text : `${text.slice(0, end).replace(/\r$/, '')}...`;
}
