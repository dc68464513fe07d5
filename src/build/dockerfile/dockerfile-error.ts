/** Errors say what is wrong with a Dockerfile, with the lines that a client shows below the message. */
import { EngineError } from '../../errors/engine-error.js';
import type { Parts } from '../../text/turns.js';
import type { LineRange } from './ast.js';

export class DockerfileError extends EngineError {
  /** @param lines undefined while the thrower does not know them: who reads the instruction adds them. */
  constructor(
    message: string,
    readonly lines?: LineRange,
    /** More instructions that have part in it. */
    readonly others: readonly LineRange[] = [],
  ) {
    super('invalid', message, { code: 'DOCKERFILE' });
  }
}

/** Runs a part of the parser; its errors get the lines that are concerned, unless they have some already. */
export function atLines<T>(lines: LineRange | undefined, part: () => T, prefix = ''): T {
  try {
    return part();
  } catch (error) {
    throw located(error, lines, prefix);
  }
}

/** The same for a part that is done in turns. */
export function* partsAtLines<T>(lines: LineRange | undefined, parts: Parts<T>, prefix = ''): Parts<T> {
  try {
    return yield* parts;
  } catch (error) {
    throw located(error, lines, prefix);
  }
}

function located(error: unknown, lines: LineRange | undefined, prefix = ''): unknown {
  if (!(error instanceof DockerfileError)) return error;
  return new DockerfileError(prefix + error.message, error.lines ?? lines, error.others);
}
