/** The rules about the instructions of one stage, in their order. */
import { posix } from 'node:path';
import type { Instruction, LineRange } from './ast.js';
import type { Checks } from './checks.js';
import { atLines } from './dockerfile-error.js';
import type { IgnoreMatcher } from './ignore-file.js';
import { exposedRanges } from './ports.js';
import { validateInstruction } from './validate.js';

const SECRET_WORDS: ReadonlySet<string> = new Set(
  'apikey auth credential credentials key password pword passwd secret token'.split(' '),
);

export class InstructionChecks {
  /** Where CMD, ENTRYPOINT and HEALTHCHECK have been the last time. */
  readonly #last = new Map<string, LineRange>();
  #hasWorkdir: boolean;
  #hasShell: boolean;
  #workdir: string;

  /** @param base the same of the stage that this one is based on. @param image what the base image says. */
  constructor(
    private readonly checks: Checks,
    private readonly ignore: IgnoreMatcher | undefined,
    base: InstructionChecks | undefined,
    image: { readonly hasShell: boolean; readonly workdir: string } | undefined,
  ) {
    this.#hasWorkdir = base === undefined ? false : base.#hasWorkdir;
    this.#hasShell = base === undefined ? (image?.hasShell ?? false) : base.#hasShell;
    this.#workdir = base === undefined ? (image?.workdir ?? '/') : base.#workdir;
  }

  /** @throws DockerfileError with the lines of the instruction. */
  see(instruction: Instruction): void {
    atLines(instruction.lines, () => {
      this.#check(instruction);
      validateInstruction(instruction, this.#workdir);
    });
    if (instruction.kind === 'WORKDIR') this.#workdir = posix.resolve('/', this.#workdir, instruction.path);
  }

  #check(instruction: Instruction): void {
    const { checks } = this;
    const { lines } = instruction;
    switch (instruction.kind) {
      case 'ARG':
        for (const { key } of instruction.args) this.#checkSecret('ARG', key, lines);
        break;
      case 'ENV':
        for (const { key, isLegacy } of instruction.pairs) {
          if (isLegacy) this.#reportLegacy(instruction);
          this.#checkSecret('ENV', key, lines);
        }
        break;
      case 'LABEL':
        for (const { isLegacy } of instruction.pairs) if (isLegacy) this.#reportLegacy(instruction);
        break;
      case 'WORKDIR':
        if (!this.#hasWorkdir && !instruction.path.startsWith('/')) {
          const quoted = JSON.stringify(instruction.path);
          const detail = `Relative workdir ${quoted} can have unexpected results if the base image changes`;
          checks.report('WorkdirRelativePath', lines, detail);
        }
        this.#hasWorkdir = true;
        break;
      case 'SHELL':
        this.#hasShell = true;
        break;
      case 'CMD':
      case 'ENTRYPOINT':
        this.#checkOnce(instruction);
        if (instruction.command.isShellForm && !this.#hasShell) {
          const name = instruction.keyword;
          const detail = `JSON arguments recommended for ${name} to prevent unintended behavior related to OS signals`;
          checks.report('JSONArgsRecommended', lines, detail);
        }
        break;
      case 'HEALTHCHECK':
        this.#checkOnce(instruction);
        break;
      case 'EXPOSE':
        this.#checkPorts(instruction.ports, lines);
        break;
      case 'ADD':
        this.#checkSources('Add', instruction.sources, lines);
        break;
      case 'COPY':
        if (instruction.from === '') this.#checkSources('Copy', instruction.sources, lines);
        break;
      default:
    }
  }

  #reportLegacy({ keyword, lines }: Instruction): void {
    const detail = `"${keyword} key=value" should be used instead of legacy "${keyword} key value" format`;
    this.checks.report('LegacyKeyValueFormat', lines, detail);
  }

  #checkSecret(instruction: string, key: string, lines: LineRange): void {
    const words = key.toLowerCase().split('_');
    if (!words.some((word) => SECRET_WORDS.has(word)) || words.includes('public')) return;
    const detail = `Do not use ARG or ENV instructions for sensitive data (${instruction} ${JSON.stringify(key)})`;
    this.checks.report('SecretsUsedInArgOrEnv', lines, detail);
  }

  /** Says so about the earlier one, which has no effect. */
  #checkOnce({ kind, keyword, lines }: Instruction): void {
    const before = this.#last.get(kind);
    if (before !== undefined) {
      const detail =
        `Multiple ${keyword} instructions should not be used in the same stage ` +
        'because only the last one will be used';
      this.checks.report('MultipleInstructionsDisallowed', before, detail);
    }
    this.#last.set(kind, lines);
  }

  #checkPorts(written: readonly string[], lines: LineRange): void {
    const { checks } = this;
    exposedRanges(written, {
      wronglyCased(port) {
        const detail = `Defined protocol '${port}' in EXPOSE instruction should be lowercase`;
        checks.report('ExposeProtoCasing', lines, detail);
      },
      mapped(port) {
        const detail = `EXPOSE instruction should not define an IP address or host-port mapping, found '${port}'`;
        checks.report('ExposeInvalidFormat', lines, detail);
      },
    });
  }

  #checkSources(command: string, sources: readonly string[], lines: LineRange): void {
    for (const source of sources) {
      if (/^https?:\/\//.test(source) || this.ignore?.matches(source) !== true) continue;
      const detail = `Attempting to ${command} file ${JSON.stringify(source)} that is excluded by .dockerignore`;
      this.checks.report('CopyIgnoredFile', lines, detail);
    }
  }
}
