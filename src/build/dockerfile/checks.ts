/** The rules of `docker build --check`: their names, descriptions, and which of them a Dockerfile wants to hear. */
import type { LineRange } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { parseBool } from './go-values.js';
import { trimSpace } from './words.js';

interface Rule {
  readonly description: string;
  /** Only who asks for it gets it. */
  readonly isExperimental?: true;
}

const RULES = {
  StageNameCasing: { description: 'Stage names should be lowercase' },
  FromAsCasing: { description: "The 'as' keyword should match the case of the 'from' keyword" },
  NoEmptyContinuation: { description: 'Empty continuation lines will become errors in a future release' },
  ConsistentInstructionCasing: {
    description: 'All commands within the Dockerfile should use the same casing (either upper or lower)',
  },
  DuplicateStageName: { description: 'Stage names should be unique' },
  ReservedStageName: { description: 'Reserved words should not be used as stage names' },
  JSONArgsRecommended: {
    description: 'JSON arguments recommended for ENTRYPOINT/CMD to prevent unintended behavior related to OS signals',
  },
  MaintainerDeprecated: {
    description: 'The MAINTAINER instruction is deprecated, use a label instead to define an image author',
  },
  UndefinedArgInFrom: { description: 'FROM command must use declared ARGs' },
  WorkdirRelativePath: {
    description:
      'Relative workdir without an absolute workdir declared within the build can have unexpected results if the ' +
      'base image changes',
  },
  UndefinedVar: { description: 'Variables should be defined before their use' },
  MultipleInstructionsDisallowed: {
    description: 'Multiple instructions of the same type should not be used in the same stage',
  },
  LegacyKeyValueFormat: { description: 'Legacy key/value format with whitespace separator should not be used' },
  InvalidBaseImagePlatform: { description: 'Base image platform does not match expected target platform' },
  RedundantTargetPlatform: {
    description: 'Setting platform to predefined $TARGETPLATFORM in FROM is redundant as this is the default behavior',
  },
  SecretsUsedInArgOrEnv: { description: 'Sensitive data should not be used in the ARG or ENV commands' },
  InvalidDefaultArgInFrom: {
    description: 'Default value for global ARG results in an empty or invalid base image name',
  },
  FromPlatformFlagConstDisallowed: { description: 'FROM --platform flag should not use a constant value' },
  ExposeProtoCasing: { description: 'Protocol in EXPOSE instruction should be lowercase' },
  ExposeInvalidFormat: {
    description:
      'IP address and host-port mapping should not be used in EXPOSE instruction. This will become an error in a ' +
      'future release',
  },
  CopyIgnoredFile: {
    description: 'Attempting to Copy file that is excluded by .dockerignore',
    isExperimental: true,
  },
  InvalidDefinitionDescription: {
    description:
      'Comment for build stage or argument should follow the format: `# <arg/stage name> <description>`. If this is ' +
      'not intended to be a description comment, add an empty line or comment between the instruction and the comment.',
    isExperimental: true,
  },
} as const satisfies Readonly<Record<string, Rule>>;

export type RuleName = keyof typeof RULES;

export interface CheckWarning {
  readonly rule: RuleName;
  readonly description: string;
  /** Empty for the one rule that has no page. */
  readonly url: string;
  /** This is wrong here. */
  readonly detail: string;
  readonly lines: LineRange;
}

export interface CheckConfig {
  readonly skip: ReadonlySet<string> | 'all';
  readonly experimental: ReadonlySet<string> | 'all';
  readonly isError: boolean;
}

/**
 * Reads the value of `# check=` or of the build argument BUILDKIT_DOCKERFILE_CHECK.
 * @param name says which, in messages. @throws DockerfileError without lines.
 */
export function parseCheckConfig(text: string, name = 'check options'): CheckConfig {
  const config: { -readonly [K in keyof CheckConfig]: CheckConfig[K] } = {
    skip: new Set(),
    experimental: new Set(),
    isError: false,
  };
  const written = trimSpace(text);
  if (written === '') return config;
  const [one = '', two, ...more] = written.split(';');
  const options = [one, two, more.length === 0 ? undefined : more.join(';')].filter((option) => option !== undefined);
  for (const option of options) {
    const sign = option.indexOf('=');
    const key = trimSpace(sign < 0 ? option : option.slice(0, sign));
    const value = trimSpace(option.slice(sign + 1));
    const isKnown = key === 'skip' || key === 'experimental' || key === 'error';
    if (sign < 0 || !isKnown) {
      const quoted = JSON.stringify(sign < 0 ? option : key);
      throw new DockerfileError(`failed to parse ${name}: invalid check option ${quoted}`);
    }
    if (key === 'error') config.isError = boolOf(option, value, name);
    else config[key] = value === 'all' ? 'all' : new Set(value.split(',').map(trimSpace));
  }
  return config;
}

function boolOf(option: string, value: string, name: string): boolean {
  const bool = parseBool(value);
  if (bool !== undefined) return bool;
  throw new DockerfileError(
    `failed to parse ${name}: failed to parse check option ${JSON.stringify(option)}: ` +
      `strconv.ParseBool: parsing ${JSON.stringify(value)}: invalid syntax`,
  );
}

/** More warnings than these help nobody, and each of many lines may have many. */
const MAX_WARNINGS = 500;

/** Collects the warnings that are wanted. */
export class Checks {
  readonly warnings: CheckWarning[] = [];

  constructor(private readonly config: CheckConfig) {}

  /** No more warnings are taken. */
  get isFull(): boolean {
    return this.warnings.length >= MAX_WARNINGS;
  }

  report(rule: RuleName, lines: LineRange, detail: string): void {
    const { description, isExperimental }: Rule = RULES[rule];
    const { skip, experimental } = this.config;
    const isWanted = isExperimental
      ? experimental === 'all' || experimental.has(rule)
      : skip !== 'all' && !skip.has(rule);
    if (!isWanted || this.isFull) return;
    const url = rule === 'InvalidBaseImagePlatform' ? '' : `https://docs.docker.com/go/dockerfile/rule/${kebab(rule)}/`;
    this.warnings.push({ rule, description, url, detail, lines });
  }

  /** Throws when the Dockerfile says that warnings are errors and there are some. */
  throwIfErrors(): void {
    if (!this.config.isError || this.warnings.length === 0) return;
    const rules = new Set(this.warnings.map(({ rule }) => rule));
    throw new DockerfileError(`lint violation found for rules: ${[...rules].toSorted().join(', ')}`);
  }
}

function kebab(rule: string): string {
  return rule
    .replace('JSONArgs', 'JsonArgs')
    .replace(/(?!^)[A-Z]/g, (letter) => `-${letter}`)
    .toLowerCase();
}
