/** Members of a configuration to which many instructions add: it would be too dear to copy them for each. */
import type { Instruction } from '../../../build/dockerfile/ast.js';
import { exposedPorts, type PortBudget } from '../../../build/dockerfile/ports.js';
import type { StageScope } from '../../../build/dockerfile/scope.js';
import type { ImageRuntimeConfig } from '../../../ports/images.js';
import { blamed } from './failure.js';

export type GrowingInstruction = Extract<Instruction, { kind: 'ENV' | 'LABEL' | 'EXPOSE' | 'VOLUME' }>;

export class GrowingConfig {
  readonly #labels: Map<string, string>;
  readonly #ports: Set<string>;
  readonly #volumes: Set<string>;

  constructor(
    { Labels, ExposedPorts, Volumes }: ImageRuntimeConfig,
    private readonly budget: PortBudget,
  ) {
    this.#labels = new Map(Object.entries(Labels ?? {}));
    this.#ports = new Set(Object.keys(ExposedPorts ?? {}));
    this.#volumes = new Set(Object.keys(Volumes ?? {}));
  }

  /** Takes an instruction over; false: it is none of these. @throws EngineError with the lines of the instruction. */
  take(instruction: Instruction): instruction is GrowingInstruction {
    switch (instruction.kind) {
      case 'ENV':
        // The scope of the stage has the variables.
        return true;
      case 'LABEL':
        for (const { key, value } of instruction.pairs) this.#labels.set(key, value);
        return true;
      case 'EXPOSE':
        for (const port of this.#portsOf(instruction)) this.#ports.add(port);
        return true;
      case 'VOLUME':
        for (const volume of instruction.volumes) this.#volumes.add(volume);
        return true;
      default:
        return false;
    }
  }

  #portsOf({ ports, lines }: Extract<Instruction, { kind: 'EXPOSE' }>): string[] {
    try {
      this.budget.spend(ports);
      return exposedPorts(ports);
    } catch (error) {
      throw blamed(error, { lines });
    }
  }

  /** Returns the configuration with all that was taken. */
  into(config: ImageRuntimeConfig, { imageEnv }: Pick<StageScope, 'imageEnv'>): ImageRuntimeConfig {
    const none = (names: Iterable<string>): Record<string, Record<string, never>> =>
      Object.fromEntries([...names].map((name) => [name, {}]));
    return {
      ...config,
      Env: [...imageEnv].map(([key, value]) => `${key}=${value}`),
      ...(this.#labels.size > 0 && { Labels: Object.fromEntries(this.#labels) }),
      ...(this.#ports.size > 0 && { ExposedPorts: none(this.#ports) }),
      ...(this.#volumes.size > 0 && { Volumes: none(this.#volumes) }),
    };
  }
}
