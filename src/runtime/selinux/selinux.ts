/**
 * SELinux: every container has a label for its processes and one for its files. Both have its own pair of categories,
 * which lives in its record and is free again when the container is removed.
 */
import { invalid } from '../../errors/engine-error.js';
import { freeLevel, SHARED_LEVEL, UNCONFINED_LEVEL } from './categories.js';
import { type Context, formatContext, parseContext } from './context.js';
import { parseLabelOptions } from './label-options.js';

export interface Labels {
  /** Empty: the runtime gives processes none, so they have that of the daemon. */
  readonly processLabel: string;
  readonly mountLabel: string;
}

export interface SeLinuxPolicy {
  /** Contexts that the policy has for containers. */
  readonly process: Context;
  readonly file: Context;
  /** Tells whether the policy knows a context. */
  isValid(context: string): boolean;
}

interface LabelledHostConfig {
  readonly Privileged: boolean;
  readonly SecurityOpt: readonly string[] | null;
}

export class SeLinux {
  readonly #policy: SeLinuxPolicy;
  readonly #labels = new Map<string, Labels>();
  /** How many containers have a level: those that share namespaces share it. */
  readonly #levels = new Map<string, number>();

  /** @param choose finds a level that is not in use. */
  constructor(
    policy: SeLinuxPolicy,
    private readonly choose: (isUsed: (level: string) => boolean) => string = freeLevel,
  ) {
    this.#policy = policy;
  }

  /**
   * Gives a container its labels, and holds them until `release`. One that has some keeps them.
   * @throws EngineError invalid for options that are wrong, or that the policy does not know.
   */
  take(id: string, { SecurityOpt, Privileged }: LabelledHostConfig): Labels {
    const held = this.#labels.get(id);
    if (held) return held;
    const labels = this.#make(SecurityOpt ?? [], Privileged);
    this.hold(id, labels);
    return labels;
  }

  /** Holds the labels of a container that was there before this daemon. */
  hold(id: string, labels: Labels): void {
    this.release(id);
    this.#labels.set(id, labels);
    this.#count(labels, 1);
  }

  /** Frees the labels of a container. Idempotent. */
  release(id: string): void {
    const labels = this.#labels.get(id);
    if (!labels) return;
    this.#labels.delete(id);
    this.#count(labels, -1);
  }

  /** Returns the label of a container's files; undefined if it has none. */
  mountLabelOf(id: string): string | undefined {
    return this.#labels.get(id)?.mountLabel;
  }

  #make(options: readonly string[], isPrivileged: boolean): Labels {
    const { process, file } = this.#policy;
    const { isDisabled, process: chosen, fileType } = parseLabelOptions(options);
    if (isDisabled) return { processLabel: '', mountLabel: withLevel(file, UNCONFINED_LEVEL) };
    const level = chosen.level ?? (process.level === '' ? '' : this.choose((one) => this.#levels.has(one)));
    const processLabel = formatContext({ ...process, ...chosen, level });
    const mountLabel = formatContext({
      ...file,
      ...(chosen.user === undefined ? {} : { user: chosen.user }),
      ...(fileType === undefined ? {} : { type: fileType }),
      level: file.level === '' ? '' : level,
    });
    for (const label of [processLabel, mountLabel])
      if (!this.#policy.isValid(label)) throw invalid(`invalid SELinux label: the policy does not know ${label}`);
    return { processLabel: isPrivileged ? '' : processLabel, mountLabel };
  }

  #count({ mountLabel }: Labels, change: number): void {
    const level = parseContext(mountLabel)?.level ?? '';
    const count = (this.#levels.get(level) ?? 0) + change;
    if (count > 0) this.#levels.set(level, count);
    else this.#levels.delete(level);
  }
}

/** Returns the label for files that a container shares with others. */
export function sharedLabel(mountLabel: string): string {
  const context = parseContext(mountLabel);
  return context ? withLevel(context, SHARED_LEVEL) : mountLabel;
}

/** In a policy without levels a context stays without one. */
function withLevel(context: Context, level: string): string {
  return formatContext(context.level === '' ? context : { ...context, level });
}
