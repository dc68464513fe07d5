/** Instructions that change the configuration of an image and none of its files. */
import { DockerfileError } from '../../build/dockerfile/dockerfile-error.js';
import { exposedPorts } from '../../build/dockerfile/ports.js';
import type { CommandLine, Instruction, KeyValue } from '../../build/dockerfile/ast.js';
import { isSignal } from '../../build/dockerfile/validate.js';
import { invalid } from '../../errors/engine-error.js';
import type { ImageRuntimeConfig } from '../../ports/images.js';
import { goDuration } from '../../text/go-quote.js';
import { quotedList, shellOf, type StageState } from './stage-state.js';

export type ConfigInstruction = Exclude<Instruction, { kind: 'RUN' | 'COPY' | 'ADD' | 'WORKDIR' }>;

export interface ConfigStep {
  readonly state: StageState;
  /** The instruction in one line, as the history has it. */
  readonly said: string;
}

/**
 * @param instruction with its variables replaced. @param written it as it was before.
 * @throws EngineError invalid.
 */
export function configStep(
  state: StageState,
  instruction: ConfigInstruction,
  written: Instruction = instruction,
): ConfigStep {
  const { config } = state;
  const becomes = (change: ImageRuntimeConfig, said: string, more: Partial<StageState> = {}): ConfigStep => ({
    state: { ...state, config: { ...config, ...change }, ...more },
    said,
  });
  switch (instruction.kind) {
    case 'ARG':
      // The history has the defaults, and not what a client gave.
      return becomes({}, `ARG ${(written.kind === 'ARG' ? written : instruction).args.map(shownArg).join(' ')}`);
    case 'ENV':
      return becomes(
        { Env: withVariables(config.Env ?? [], instruction.pairs) },
        `ENV ${shownPairs(instruction.pairs)}`,
      );
    case 'LABEL':
      return becomes(
        {
          Labels: { ...config.Labels, ...Object.fromEntries(instruction.pairs.map(({ key, value }) => [key, value])) },
        },
        `LABEL ${shownPairs(instruction.pairs)}`,
      );
    case 'CMD': {
      const words = wordsOf(instruction.command, config);
      return becomes({ Cmd: words }, `CMD ${quotedList(words)}`, { hasOwnCmd: true });
    }
    case 'ENTRYPOINT': {
      const words = wordsOf(instruction.command, config);
      const Cmd = state.hasOwnCmd ? (config.Cmd ?? null) : null;
      return becomes({ Entrypoint: words, Cmd }, `ENTRYPOINT ${quotedList(words)}`);
    }
    case 'EXPOSE': {
      const ports = inClassicWords(() => exposedPorts(instruction.ports));
      const added = Object.fromEntries(ports.map((port) => [port, {}]));
      const said = `EXPOSE ${instruction.ports.join(' ')}`;
      return becomes({ ExposedPorts: { ...config.ExposedPorts, ...added } }, said);
    }
    case 'VOLUME': {
      const added = Object.fromEntries(instruction.volumes.map((path) => [path, {}]));
      return becomes({ Volumes: { ...config.Volumes, ...added } }, `VOLUME [${instruction.volumes.join(' ')}]`);
    }
    case 'USER':
      return becomes({ User: instruction.user }, `USER ${instruction.user}`);
    case 'STOPSIGNAL':
      if (!isSignal(instruction.signal)) throw invalid(`invalid signal: ${instruction.signal}`);
      return becomes({ StopSignal: instruction.signal }, `STOPSIGNAL ${instruction.signal}`);
    case 'SHELL':
      return becomes({ Shell: [...instruction.shell] }, `SHELL [${instruction.shell.join(' ')}]`);
    case 'ONBUILD':
      return becomes(
        { OnBuild: [...(config.OnBuild ?? []), instruction.expression] },
        `ONBUILD ${instruction.expression}`,
      );
    case 'MAINTAINER':
      return becomes({}, `MAINTAINER ${instruction.maintainer}`, { author: instruction.maintainer });
    default:
      return healthStep(state, instruction);
  }
}

function healthStep(state: StageState, instruction: Extract<Instruction, { kind: 'HEALTHCHECK' }>): ConfigStep {
  const { test, interval, timeout, startPeriod, startInterval, retries } = instruction.healthcheck;
  const times = [interval, timeout, startPeriod, startInterval];
  const Healthcheck = {
    Test: [...test],
    ...(interval === 0 ? {} : { Interval: interval }),
    ...(timeout === 0 ? {} : { Timeout: timeout }),
    ...(startPeriod === 0 ? {} : { StartPeriod: startPeriod }),
    ...(startInterval === 0 ? {} : { StartInterval: startInterval }),
    ...(retries === 0 ? {} : { Retries: retries }),
  };
  return {
    state: { ...state, config: { ...state.config, Healthcheck } },
    said: `HEALTHCHECK &{[${test.join(' ')}] ${times.map(goDuration).join(' ')} ${retries}}`,
  };
}

function wordsOf({ args, isShellForm }: CommandLine, config: ImageRuntimeConfig): string[] {
  return isShellForm && args.length > 0 ? [...shellOf(config), ...args] : [...args];
}

function withVariables(env: readonly string[], pairs: readonly KeyValue[]): string[] {
  const result = [...env];
  // The first of a name counts. One instruction may have thousands.
  const places = new Map(env.map((entry, at) => [entry.split('=', 1)[0] ?? '', at] as const).reverse());
  for (const { key, value } of pairs) {
    const at = places.get(key) ?? result.length;
    places.set(key, at);
    result.splice(at, 1, `${key}=${value}`);
  }
  return result;
}

function shownPairs(pairs: readonly KeyValue[]): string {
  return pairs.map(({ key, value }) => `${key}=${value}`).join(' ');
}

function shownArg({ key, value }: { readonly key: string; readonly value: string | undefined }): string {
  return value === undefined ? key : `${key}=${value}`;
}

/** Reads ports. @throws DockerfileError in the words of the classic builder. */
export function inClassicWords<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof DockerfileError)) throw error;
    const [, text = '', why = error.message] = /^invalid port: ("[^]*"): ([^]*)$/.exec(error.message) ?? [];
    if (why === 'no port specified') throw new DockerfileError(`No port specified: ${JSON.parse(text)}<empty>`);
    throw new DockerfileError(why.replace(/^invalid/, 'Invalid').replace(/^Invalid IP/, 'Invalid ip'));
  }
}
