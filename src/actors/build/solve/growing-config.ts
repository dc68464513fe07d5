/** Members of a configuration to which many instructions add: it would be too dear to copy them for each. */
import type { Instruction } from '../../../build/dockerfile/ast.js';
import { exposedPortParts } from '../../../build/dockerfile/ports.js';
import type { StageScope } from '../../../build/dockerfile/scope.js';
import type { ImageRuntimeConfig } from '../../../ports/images.js';
import { objectParts } from '../../../text/object-parts.js';
import { ownMember } from '../../../text/own-member.js';
import type { Parts } from '../../../text/turns.js';
import { blamed } from './failure.js';
import { configText, exposeText } from './history-text.js';
import type { PlanBudget } from './plan-budget.js';

const GROWING = ['ENV', 'LABEL', 'EXPOSE', 'VOLUME', 'ONBUILD'] as const;
/** So many members are added together. */
const MEMBERS = 1000;

export type GrowingInstruction = Extract<Instruction, { kind: (typeof GROWING)[number] }>;

export function isGrowing(instruction: Instruction): instruction is GrowingInstruction {
  return (GROWING as readonly string[]).includes(instruction.kind);
}

export class GrowingConfig {
  /** Each is undefined until something is added to it, so that stages share what their base has. */
  #labels: Map<string, string> | undefined;
  #ports: Set<string> | undefined;
  #volumes: Set<string> | undefined;
  #triggers: string[] | undefined;

  /** @param base the configuration that the stage begins with. */
  constructor(
    private readonly base: ImageRuntimeConfig,
    private readonly budget: PlanBudget,
  ) {}

  /**
   * Takes an instruction over. Returns its text in the history, which is empty when it leaves none.
   * @throws EngineError with the instruction's lines.
   */
  *take(instruction: GrowingInstruction): Parts<string> {
    switch (instruction.kind) {
      case 'LABEL': {
        const { Labels } = this.base;
        this.#labels ??= new Map(yield* this.#copied(Labels, (name) => [name, ownMember(Labels, name) ?? ''] as const));
        for (const { key, value } of instruction.pairs) this.#labels.set(key, value);
        break;
      }
      case 'EXPOSE': {
        this.#ports ??= new Set(yield* this.#copied(this.base.ExposedPorts, (name) => name));
        const ports = yield* this.#portsOf(instruction);
        yield* addAll(this.#ports, ports);
        return yield* exposeText(ports);
      }
      case 'VOLUME':
        this.#volumes ??= new Set(yield* this.#copied(this.base.Volumes, (name) => name));
        for (const volume of instruction.volumes) this.#volumes.add(volume);
        break;
      case 'ONBUILD':
        this.#triggers ??= [...(this.base.OnBuild ?? [])];
        this.#triggers.push(instruction.expression);
        break;
      default:
      // The scope of the stage has the variables.
    }
    return configText(instruction);
  }

  /** Returns the configuration with all that was taken. */
  *into(config: ImageRuntimeConfig, { imageEnv }: Pick<StageScope, 'imageEnv'>): Parts<ImageRuntimeConfig> {
    const [labels, ports, volumes, triggers] = [this.#labels, this.#ports, this.#volumes, this.#triggers];
    const Env: string[] = [];
    for (const [key, value] of imageEnv) {
      Env.push(`${key}=${value}`);
      if (Env.length % MEMBERS === 0) yield;
    }
    return {
      ...config,
      Env,
      ...(labels && { Labels: yield* objectParts(labels.keys(), (name) => labels.get(name) ?? '') }),
      ...(ports && { ExposedPorts: yield* objectParts(ports, () => ({})) }),
      ...(volumes && { Volumes: yield* objectParts(volumes, () => ({})) }),
      ...(triggers && { OnBuild: triggers }),
    };
  }

  *#portsOf({ ports, lines }: Extract<Instruction, { kind: 'EXPOSE' }>): Parts<string[]> {
    try {
      this.budget.ports.spend(ports);
      yield;
      return yield* exposedPortParts(ports);
    } catch (error) {
      throw blamed(error, { lines });
    }
  }

  /** Returns what the base has, which each stage that adds something copies. */
  *#copied<T>(members: Readonly<Record<string, unknown>> | null | undefined, valueOf: (name: string) => T): Parts<T[]> {
    const names = Object.keys(members ?? {});
    this.budget.copy(names.length);
    const values: T[] = [];
    for (const name of names) {
      values.push(valueOf(name));
      if (values.length % MEMBERS === 0) yield;
    }
    return values;
  }
}

function* addAll(set: Set<string>, names: readonly string[]): Parts<void> {
  for (const [at, name] of names.entries()) {
    set.add(name);
    if (at % MEMBERS === MEMBERS - 1) yield;
  }
}
