/**
 * From the text of a Dockerfile to its stages and instructions. Everything that can be said without the arguments of
 * the build is said here, in BuildKit's words.
 */
import { inTurns, type Parts, whole } from '../../text/turns.js';
import type { ArgInstruction, Dockerfile, Instruction, Stage } from './ast.js';
import { atLines, DockerfileError, partsAtLines } from './dockerfile-error.js';
import { type Features, featuresOf, featuresOfImage } from './features.js';
import { parseInstruction } from './instruction.js';
import { nodeParts, readNodes } from './nodes.js';

/** Later, each of these costs more than it does here. */
const MAX_INSTRUCTIONS = 10_000;
const MAX_STAGES = 500;

const NO_FEATURES: Features = { parents: false, labs: false };

/**
 * @param features replaces those that follow from the `# syntax=` of the text.
 * @throws DockerfileError with the lines that are concerned.
 */
export function parseDockerfile(source: Buffer | string, features?: Features): Dockerfile {
  return whole(dockerfileParts(source, features));
}

/** A Dockerfile as it came, and the image of its frontend when something else than its own lines says which. */
export interface DockerfileText {
  readonly text: Buffer;
  readonly syntax?: string;
}

/** Dockerfiles that have been read, by their bytes: a build reads its own for its early warnings and for its plan. */
const READ = new WeakMap<Buffer, { readonly syntax: string | undefined; readonly dockerfile: Dockerfile }>();

/**
 * The same without holding up others. The bytes must not change.
 * @throws DockerfileError
 */
export async function readDockerfile({ text, syntax }: DockerfileText, signal?: AbortSignal): Promise<Dockerfile> {
  const read = READ.get(text);
  if (read !== undefined && read.syntax === syntax) return read.dockerfile;
  const features = syntax === undefined ? undefined : featuresOfImage(syntax);
  const dockerfile = await inTurns(dockerfileParts(text, features), signal);
  READ.set(text, { syntax, dockerfile });
  return dockerfile;
}

/** The same for the classic builder, which knows no other frontends. @throws DockerfileError in its words. */
export function readClassicDockerfile({ text }: DockerfileText, signal?: AbortSignal): Promise<Dockerfile> {
  return inTurns(dockerfileParts(text, NO_FEATURES, 'failed to parse Dockerfile: '), signal);
}

/** @param prefix of what is said about the lines before their instructions are understood. */
function* dockerfileParts(source: Buffer | string, features?: Features, prefix = ''): Parts<Dockerfile> {
  const text = typeof source === 'string' ? source : source.toString('utf8');
  if (text === '') throw new DockerfileError('the Dockerfile cannot be empty');
  const { nodes, directives, escape, emptyContinuations } = yield* partsAtLines(undefined, nodeParts(text), prefix);
  if (nodes.length > MAX_INSTRUCTIONS)
    throw new DockerfileError(`Dockerfile has more than ${MAX_INSTRUCTIONS} instructions`);
  const allowed = features ?? featuresOf(text) ?? NO_FEATURES;
  const globalArgs: ArgInstruction[] = [];
  const stages: (Stage & { readonly instructions: Instruction[] })[] = [];
  for (const node of nodes) {
    yield;
    const prefix = `dockerfile parse error on line ${node.lines.start}: `;
    const parsed = atLines(node.lines, () => parseInstruction(node, escape, allowed), prefix);
    if (parsed.kind === 'FROM') {
      if (stages.length === MAX_STAGES)
        throw new DockerfileError(`Dockerfile has more than ${MAX_STAGES} stages`, node.lines);
      const { kind, ...head } = parsed;
      void kind;
      stages.push({ ...head, index: stages.length, instructions: [] });
    } else if (stages.length === 0 && parsed.kind === 'ARG') globalArgs.push(parsed);
    else if (stages.length === 0) throw new DockerfileError('no build stage in current context', node.lines);
    else stages.at(-1)?.instructions.push(parsed);
  }
  if (stages.length === 0) throw new DockerfileError('dockerfile contains no stages to build');
  return { text, directives, escape, globalArgs, stages, emptyContinuations };
}

/** Reads the instruction of an ONBUILD. @throws DockerfileError */
export function parseTrigger(expression: string, features = NO_FEATURES): Instruction {
  const [node] = readNodes(expression).nodes;
  if (node === undefined) throw new DockerfileError('file with no instructions');
  const parsed = atLines(node.lines, () => parseInstruction(node, '\\', features));
  if (parsed.kind === 'FROM') throw new DockerfileError("FROM isn't allowed as an ONBUILD trigger");
  return parsed;
}
