/** The words in which the history of an image tells of an instruction. */
import { withoutLogin } from '../../../build/sources/git-url.js';
import type { AddInstruction, CopyInstruction, Instruction } from '../../../build/dockerfile/ast.js';
import type { StageScope } from '../../../build/dockerfile/scope.js';
import { goDuration, goQuote, goQuoteCharacter, goQuotedList } from '../../../text/go-quote.js';
import type { Parts } from '../../../text/turns.js';
import type { ConfigInstruction } from '../config-steps.js';

/** Instructions that make a layer end with this. */
const LAYER_MARK = ' # buildkit';

type Health = Extract<Instruction, { kind: 'HEALTHCHECK' }>['healthcheck'];

/** Instructions of the configuration, but for EXPOSE, whose ports have to be read first. */
type WrittenInstruction = Exclude<ConfigInstruction, { kind: 'EXPOSE' }>;

/**
 * Returns the text of an instruction that changes the configuration only; empty for one that leaves no trace.
 * @param words the command of CMD or ENTRYPOINT with its shell.
 */
export function configText(instruction: WrittenInstruction, words: readonly string[] = []): string {
  switch (instruction.kind) {
    case 'ARG':
      return `ARG ${instruction.args.map(argText).join(' ')}`;
    case 'ENV':
    case 'LABEL':
      return `${instruction.kind} ${instruction.pairs.map(({ key, value }) => `${key}=${value}`).join(' ')}`;
    case 'CMD':
    case 'ENTRYPOINT':
      return `${instruction.kind} ${goQuotedList(words)}`;
    case 'VOLUME':
      return `VOLUME [${instruction.volumes.join(' ')}]`;
    case 'USER':
      return `USER ${instruction.user}`;
    case 'STOPSIGNAL':
      return `STOPSIGNAL ${instruction.signal}`;
    case 'SHELL':
      return `SHELL [${instruction.shell.join(' ')}]`;
    case 'MAINTAINER':
      return `MAINTAINER ${instruction.maintainer}`;
    case 'HEALTHCHECK':
      return `HEALTHCHECK ${healthText(instruction.healthcheck)}`;
    default:
      return '';
  }
}

/** So many ports are joined together. */
const PORTS = 5000;

export function* exposeText(ports: readonly string[]): Parts<string> {
  let text = '';
  for (let at = 0; at < ports.length; at += PORTS) {
    text += `${at === 0 ? '' : ' '}${ports.slice(at, at + PORTS).join(' ')}`;
    yield;
  }
  return `EXPOSE [${text}]`;
}

function argText({ key, value }: { readonly key: string; readonly value: string | undefined }): string {
  return value === undefined ? key : `${key}=${value}`;
}

function healthText({ test, interval, timeout, startPeriod, startInterval, retries }: Health): string {
  const durations = [interval, timeout, startPeriod, startInterval].map((value) => goQuote(goDuration(value)));
  return `&{${goQuotedList(test)} ${durations.join(' ')} ${goQuoteCharacter(retries)}}`;
}

export function workdirText(path: string): string {
  return `WORKDIR ${path}`;
}

export function copyText({ kind, chown, chmod, sources, inlineFiles, destination }: AddInstruction | CopyInstruction) {
  const flags = [...(chown === '' ? [] : [`--chown=${chown}`]), ...(chmod === '' ? [] : [`--chmod=${chmod}`])];
  const files = [...sources.map(withoutLogin), ...inlineFiles.map(({ name }) => `<<${name}`)];
  return [kind, ...flags, ...files, destination].join(' ') + LAYER_MARK;
}

/** Shows the arguments that were declared before, too. */
export function runText(words: readonly string[], scope: Pick<StageScope, 'shownArgs'>): string {
  const args = scope.shownArgs();
  // Texts that are put together like this share the arguments, which may be long.
  return `RUN ${args}${args === '' ? '' : ' '}${words.join(' ')}${LAYER_MARK}`;
}

/** Returns what a process of RUN is called in messages about it. */
export function processText(words: readonly string[]): string {
  return `process ${goQuote(words.join(' '))}`;
}
