/** Errors that an instruction has only when its variables are replaced: values that no step could use. */
import { posix } from 'node:path';
import { signalNumber } from '../../text/signals.js';
import type { AddInstruction, Instruction, RunInstruction } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';

/**
 * @param instruction with its variables replaced. @param workdir of the stage at this place.
 * @throws DockerfileError without lines.
 */
export function validateInstruction(instruction: Instruction, workdir: string): void {
  switch (instruction.kind) {
    case 'RUN':
      validateRun(instruction, workdir);
      break;
    case 'COPY':
      validateMode(instruction.chmod);
      break;
    case 'ADD':
      validateMode(instruction.chmod);
      validateChecksum(instruction);
      break;
    case 'VOLUME':
      if (instruction.volumes.includes('')) throw new DockerfileError('VOLUME specified can not be an empty string');
      break;
    case 'STOPSIGNAL':
      if (!isSignal(instruction.signal)) throw new DockerfileError(`invalid signal: ${instruction.signal}`);
      break;
    default:
  }
}

/** A number may be any but 0: the kernel of another platform may know it. */
export function isSignal(text: string): boolean {
  return /^[+-]?\d{1,9}$/.test(text) ? Number(text) !== 0 : signalNumber(text) !== undefined;
}

function validateRun({ mounts, command }: RunInstruction, workdir: string): void {
  if (command.heredocs.length > 0 && (command.args.length !== 1 || !command.isShellForm))
    throw new DockerfileError(`parsing produced an invalid run command: [${command.args.join(' ')}]`);
  for (const { type, source, target } of mounts) {
    if (type === 'ssh' && source !== '') throw new DockerfileError('ssh does not support source');
    if (type !== 'ssh' && type !== 'secret' && mountTarget(target, workdir) === '/')
      throw new DockerfileError('invalid mount target "/"');
  }
}

/** Where a mount appears; a relative target is below the working directory. */
export function mountTarget(target: string, workdir: string): string {
  const path = target.startsWith('/') ? posix.normalize(target) : posix.join('/', workdir, target);
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
}

const MAX_MODE = 0o7777;
/** A clause says who, how, and which rights: `u=rwX,go-w`. Rights may be copied from others: `g=u`. */
const CLAUSE = /^[ugoa]*(?:[+=-](?:[ugo]|[rwxXst]*))+$/;

function validateMode(chmod: string): void {
  if (chmod === '') return;
  if (/^[0-9]/.test(chmod)) {
    const isOctal = /^[0-7]{1,11}$/.test(chmod);
    if (isOctal && parseInt(chmod, 8) <= MAX_MODE) return;
    throw new DockerfileError(`invalid chmod parameter: '${chmod}'. it should be octal string and between 0 and 07777`);
  }
  if (!chmod.split(',').every((clause) => CLAUSE.test(clause))) throw new DockerfileError('invalid syntax');
}

function validateChecksum({ checksum, sources }: AddInstruction): void {
  if (checksum === '') return;
  if (sources.length !== 1) throw new DockerfileError("checksum can't be specified for multiple sources");
  if (!isRemote(sources[0] ?? '')) throw new DockerfileError('checksum requires HTTP(S) or Git sources');
}

/** True for a source of ADD that is fetched: by HTTP, or from a git repository. */
export function isRemote(source: string): boolean {
  return /^(?:https?|git|ssh):\/\//.test(source) || source.startsWith('git@') || isShortGit(source);
}

function isShortGit(source: string): boolean {
  return source.startsWith('github.com/') || /^[\w.-]+@[\w.-]+:/.test(source);
}
