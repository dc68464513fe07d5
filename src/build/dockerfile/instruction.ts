/** Understands one instruction: its flags, the number of its arguments, and the values that need no variables. */
import type { ArgDefinition, CommandLine, Instruction, KeyValue, Stage } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import type { Features } from './features.js';
import { Flags } from './flags.js';
import { parseAdd, parseCopy, parseRun } from './file-instructions.js';
import { parseHealthcheck } from './healthcheck.js';
import { splitInstruction, type Node } from './nodes.js';
import { atLeastOne, commandOf, type Common, listOf, noFlags, type Source } from './source.js';
import { didYouMean } from './suggest.js';
import { jsonStrings, pairsIn, shellWords, splitBlanks, trimSpace } from './words.js';

/** A stage before its instructions are read. */
export type StageHead = Omit<Stage, 'index' | 'instructions'> & { readonly kind: 'FROM' };

type Parser = (source: Source) => Instruction | StageHead;

const PARSERS: ReadonlyMap<string, Parser> = new Map<string, Parser>([
  ['ADD', parseAdd],
  ['ARG', parseArg],
  ['CMD', (source) => ({ ...source.common, kind: 'CMD', command: commandLine(source) })],
  ['COPY', parseCopy],
  ['ENTRYPOINT', (source) => ({ ...source.common, kind: 'ENTRYPOINT', command: commandLine(source) })],
  ['ENV', (source) => ({ ...source.common, kind: 'ENV', pairs: pairsOf(source, 'ENV') })],
  ['EXPOSE', parseExpose],
  ['FROM', parseFrom],
  ['HEALTHCHECK', parseHealthcheck],
  ['LABEL', (source) => ({ ...source.common, kind: 'LABEL', pairs: pairsOf(source, 'LABEL') })],
  ['MAINTAINER', (source) => ({ ...source.common, kind: 'MAINTAINER', maintainer: onlyArgument(source) })],
  ['ONBUILD', parseOnbuild],
  ['RUN', parseRun],
  ['SHELL', parseShell],
  ['STOPSIGNAL', (source) => ({ ...source.common, kind: 'STOPSIGNAL', signal: onlyArgument(source, true) })],
  ['USER', (source) => ({ ...source.common, kind: 'USER', user: onlyArgument(source) })],
  ['VOLUME', parseVolume],
  ['WORKDIR', (source) => ({ ...source.common, kind: 'WORKDIR', path: onlyArgument(source) })],
]);

export const INSTRUCTIONS: readonly string[] = [...PARSERS.keys()];

/** @throws DockerfileError without lines. */
export function parseInstruction(node: Node, escape: '\\' | '`', features: Features): Instruction | StageHead {
  const parser = PARSERS.get(node.keyword.toUpperCase());
  if (parser === undefined) {
    const suggestion = didYouMean(node.keyword, INSTRUCTIONS, false);
    throw new DockerfileError(`unknown instruction: ${node.keyword}${suggestion}`);
  }
  const { keyword, original, lines, comments } = node;
  return parser({ node, common: { keyword, original, lines, comments }, escape, features });
}

/** Only the number of arguments and the flags are read, as for every instruction with one text. */
function onlyArgument({ node }: Source, hasNoFlags = false): string {
  if (node.rest === '') throw new DockerfileError(`${node.keyword.toUpperCase()} requires exactly one argument`);
  if (!hasNoFlags) noFlags(node);
  return node.rest;
}

function commandLine({ node }: Source): CommandLine {
  noFlags(node);
  return commandOf(node.rest, node.heredocs);
}

function parseArg({ node, common, escape }: Source): Instruction {
  const words = shellWords(node.rest, escape);
  if (words.length === 0) throw atLeastOne('ARG');
  const descriptions = descriptionsIn(common);
  const args = words.map((word): ArgDefinition => {
    const sign = word.indexOf('=');
    if (sign === 0) throw new DockerfileError('ARG names can not be blank');
    const key = sign < 0 ? word : word.slice(0, sign);
    return { key, value: sign < 0 ? undefined : word.slice(sign + 1), description: descriptions.get(key) ?? '' };
  });
  return { ...common, kind: 'ARG', args };
}

function pairsOf({ node, escape }: Source, command: string): KeyValue[] {
  const pairs = pairsIn(node.rest, command, escape);
  noFlags(node);
  if (pairs.length === 0) throw atLeastOne(command);
  if (pairs.some(({ key }) => key === '')) throw new DockerfileError(`${command} names can not be blank`);
  return pairs;
}

function parseExpose({ node, common }: Source): Instruction {
  if (node.rest === '') throw atLeastOne('EXPOSE');
  noFlags(node);
  return { ...common, kind: 'EXPOSE', ports: splitBlanks(node.rest).sort() };
}

const STAGE_NAME = /^[a-z][a-z0-9-_.]*$/;

function parseFrom({ node, common }: Source): StageHead {
  const args = node.rest === '' ? [] : splitBlanks(node.rest);
  const [base = '', asKeyword = '', writtenName = ''] = args;
  const name = writtenName.toLowerCase();
  if (args.length === 3 && asKeyword.toLowerCase() === 'as') {
    if (!STAGE_NAME.test(name)) {
      const quoted = JSON.stringify(writtenName);
      throw new DockerfileError(
        `invalid name for build stage: ${quoted}, name can't start with a number or contain symbols`,
      );
    }
  } else if (args.length !== 1) throw new DockerfileError('FROM requires either one or three arguments');
  const flags = new Flags(node.flags, new Map([['platform', 'text']]));
  const description = descriptionsIn(common).get(name) ?? '';
  return { ...common, kind: 'FROM', name, writtenName, asKeyword, base, platform: flags.text('platform'), description };
}

/** Returns what the comment says of each name: a line of it is `name description`, and the first one counts. */
function descriptionsIn({ comments }: Common): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const line of comments) {
    const blank = line.indexOf(' ');
    const name = line.slice(0, Math.max(blank, 0));
    if (name !== '' && !found.has(name)) found.set(name, line.slice(blank + 1));
  }
  return found;
}

function parseOnbuild({ node, common, escape }: Source): Instruction {
  if (node.rest === '') throw atLeastOne('ONBUILD');
  noFlags(node);
  const trigger = splitInstruction(node.rest, escape).keyword.toUpperCase();
  if (trigger === 'ONBUILD') throw new DockerfileError("Chaining ONBUILD via `ONBUILD ONBUILD` isn't allowed");
  if (trigger === 'MAINTAINER' || trigger === 'FROM')
    throw new DockerfileError(`${trigger} isn't allowed as an ONBUILD trigger`);
  const texts = node.heredocs.map(({ content, name }) => `\n${content}${name}`);
  const expression = trimSpace(common.original).replace(/^onbuild[\t\n\f\r ]*/i, '') + texts.join('');
  return { ...common, kind: 'ONBUILD', expression };
}

function parseShell({ node, common }: Source): Instruction {
  noFlags(node);
  const json = jsonStrings(node.rest);
  if (node.rest === '' || json?.length === 0) throw atLeastOne('SHELL');
  if (json === undefined) throw new DockerfileError('SHELL requires the arguments to be in JSON form');
  return { ...common, kind: 'SHELL', shell: json };
}

function parseVolume({ node, common }: Source): Instruction {
  const args = listOf(node.rest);
  if (args.length === 0) throw atLeastOne('VOLUME');
  noFlags(node);
  const volumes = args.map(trimSpace);
  if (volumes.includes('')) throw new DockerfileError('VOLUME specified can not be an empty string');
  return { ...common, kind: 'VOLUME', volumes };
}
