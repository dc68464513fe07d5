/** Refuses stages that take files from each other in a circle. */
import type { Parts } from '../../text/turns.js';
import type { Instruction, Stage } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';

/** A stage, and where each of its instructions takes files from; an index is that of another stage. */
interface LinkedStage {
  readonly stage: Stage;
  readonly sources: ReadonlyMap<
    Instruction,
    readonly ({ readonly kind: string; readonly index?: number } | undefined)[]
  >;
}

type Needs = readonly [Instruction, number];

interface Step {
  readonly index: number;
  /** The instruction that needs this stage. */
  readonly by: Instruction | undefined;
  readonly next: Iterator<Needs>;
}

/** Only `--from` can make a cycle, since a base comes before. The walk keeps its own stack, for long chains. */
export function* refuseCycles(stages: readonly LinkedStage[]): Parts<void> {
  const done = new Set<number>();
  for (const start of stages.keys()) {
    const path: Step[] = [];
    const onPath = new Set<number>();
    const enter = (index: number, by?: Instruction): void => {
      done.add(index);
      onPath.add(index);
      path.push({ index, by, next: dependencies(stages[index])[Symbol.iterator]() });
    };
    if (!done.has(start)) enter(start);
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      yield;
      const { value, done: isEnd } = top.next.next();
      if (isEnd) {
        onPath.delete(top.index);
        path.pop();
        continue;
      }
      const [instruction, index] = value;
      if (onPath.has(index)) {
        const name = stages[start]?.stage.name || `stage-${start}`;
        const [lines, ...others] = [...path.map(({ by }) => by), instruction].flatMap((by) => by?.lines ?? []);
        throw new DockerfileError(`circular dependency detected on stage: ${name}`, lines, others);
      }
      if (!done.has(index)) enter(index, instruction);
    }
  }
}

function dependencies(stage: LinkedStage | undefined): Needs[] {
  return [...(stage?.sources ?? [])].flatMap(([instruction, sources]) =>
    sources.flatMap((source) => (source?.index === undefined ? [] : [[instruction, source.index] as const])),
  );
}
