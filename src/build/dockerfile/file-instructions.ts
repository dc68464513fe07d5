/** RUN, COPY and ADD: the instructions that change the files of an image. */
import type { AddInstruction, CopyInstruction, InlineFile, RunInstruction, SourcesAndDestination } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { type FlagKind, Flags } from './flags.js';
import { chompHeredoc, heredocMark, type HeredocMark } from './heredocs.js';
import { commandOf, listOf, type Source } from './source.js';
import type { Node } from './nodes.js';
import { mountFrom, parseDevice } from './run-flags.js';

const COPY_FLAGS: readonly (readonly [string, FlagKind])[] = [
  ['chown', 'text'],
  ['chmod', 'text'],
  ['link', 'bool'],
  ['exclude', 'texts'],
];

/** All inline files of an instruction have so many characters: a Dockerfile is no longer, but may name one often. */
const MAX_INLINE = 1 << 20;

export function parseRun({ node, common, features }: Source): RunInstruction {
  const known: (readonly [string, FlagKind])[] = [
    ['mount', 'texts'],
    ['network', 'text'],
    ['device', 'texts'],
  ];
  if (features.labs) known.push(['security', 'text']);
  const flags = new Flags(node.flags, new Map(known));
  const command = commandOf(node.rest, node.heredocs);
  const mountTexts = flags.texts('mount');
  const mountFroms = mountTexts.map(mountFrom);
  const network = flags.has('network') ? flags.text('network') : 'default';
  if (network !== 'default' && network !== 'none' && network !== 'host')
    throw new DockerfileError(`invalid network mode ${JSON.stringify(network)}`);
  const security = flags.has('security') ? flags.text('security') : 'sandbox';
  if (security !== 'sandbox' && security !== 'insecure')
    throw new DockerfileError(`security ${JSON.stringify(security)} is not valid`);
  const devices = flags.texts('device').map(parseDevice);
  const { keyword, original, lines, comments } = common;
  return {
    keyword,
    original,
    lines,
    comments,
    kind: 'RUN',
    command,
    mountTexts,
    mountFroms,
    mounts: [],
    network,
    security,
    devices,
    flags: flags.names,
  };
}

export function parseCopy({ node, common, features }: Source): CopyInstruction {
  const args = sourcesAndDestination(node, 'COPY');
  const known = [['from', 'text'] as const, ...COPY_FLAGS];
  if (features.parents) known.push(['parents', 'bool']);
  const flags = new Flags(node.flags, new Map(known));
  return {
    ...common,
    kind: 'COPY',
    ...copyFlags(flags),
    from: flags.text('from'),
    parents: flags.isTrue('parents'),
    ...filesOf(args, node, 'COPY'),
  };
}

export function parseAdd({ node, common }: Source): AddInstruction {
  const args = sourcesAndDestination(node, 'ADD');
  const known = [
    ...COPY_FLAGS,
    ['keep-git-dir', 'bool'] as const,
    ['checksum', 'text'] as const,
    ['unpack', 'bool'] as const,
  ];
  const flags = new Flags(node.flags, new Map(known));
  return {
    ...common,
    kind: 'ADD',
    ...copyFlags(flags),
    checksum: flags.text('checksum'),
    keepGitDir: flags.choice('keep-git-dir'),
    unpack: flags.choice('unpack'),
    ...filesOf(args, node, 'ADD'),
  };
}

function sourcesAndDestination(node: Node, command: string): string[] {
  const args = listOf(node.rest);
  if (args.length >= 2) return args;
  throw new DockerfileError(
    `${command} requires at least two arguments, but only one was provided. Destination could not be determined`,
  );
}

function copyFlags(flags: Flags): {
  readonly chown: string;
  readonly chmod: string;
  readonly link: boolean;
  readonly exclude: readonly string[];
  readonly flags: readonly string[];
} {
  return {
    chown: flags.text('chown'),
    chmod: flags.text('chmod'),
    link: flags.isTrue('link'),
    exclude: flags.texts('exclude'),
    flags: flags.names,
  };
}

function filesOf(args: readonly string[], node: Node, command: string): SourcesAndDestination {
  const destination = args.at(-1) ?? '';
  if (markOf(destination) !== undefined)
    throw new DockerfileError(`${command} cannot accept a heredoc as a destination`);
  const contents = new Map(node.heredocs.map(({ name, content }) => [name, content]));
  const sources: string[] = [];
  const inlineFiles: InlineFile[] = [];
  let left = MAX_INLINE;
  for (const source of args.slice(0, -1)) {
    const mark = markOf(source);
    if (mark === undefined) sources.push(source);
    else {
      const content = contents.get(mark.name) ?? '';
      left -= content.length;
      if (left < 0) throw new DockerfileError('an instruction names its heredocs too often');
      inlineFiles.push({
        name: mark.name,
        content: mark.chomp ? chompHeredoc(content) : content,
        expand: mark.expand,
      });
    }
  }
  return { sources, inlineFiles, destination };
}

function markOf(word: string): HeredocMark | undefined {
  try {
    return heredocMark(word);
  } catch (error) {
    if (error instanceof DockerfileError) return undefined;
    throw error;
  }
}
