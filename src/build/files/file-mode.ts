/** The mode of `--chmod`: an octal number, or changes such as `u=rwX,go=rX`. */
import { invalid } from '../../errors/engine-error.js';

export type ModeChange = (mode: number, isDirectory: boolean) => number;

const MAX_MODE = 0o7777;
const SHIFTS: ReadonlyMap<string, number> = new Map([
  ['u', 6],
  ['g', 3],
  ['o', 0],
]);
const CLAUSE = /^([ugoa]*)((?:[+=-](?:[ugo]|[rwxXst]*))+)$/;
const ACTION = /([+=-])([ugo]|[rwxXst]*)/g;

/** @throws EngineError invalid in the words of BuildKit. */
export function parseMode(text: string): ModeChange {
  if (text === '') return (mode) => mode;
  if (/^[0-7]{1,5}$/.test(text) && Number.parseInt(text, 8) <= MAX_MODE) {
    const fixed = Number.parseInt(text, 8);
    return () => fixed;
  }
  const clauses =
    /^\d/.test(text) || text.length > 200 ? undefined : text.split(',').map((clause) => CLAUSE.exec(clause));
  if (!clauses?.every((clause) => clause !== null))
    throw invalid(`invalid chmod parameter: '${text}'. it should be octal string and between 0 and 07777`, {
      code: 'BAD_MODE',
    });
  return (mode, isDirectory) =>
    clauses.reduce((current, [, who = '', actions = '']) => {
      let changed = current;
      for (const [, sign = '', what = ''] of actions.matchAll(ACTION))
        changed = applied(changed, {
          who: who === '' || who.includes('a') ? 'ugo' : who,
          sign,
          what,
          // The rights before the first change count.
          isProgram: isDirectory || (mode & 0o111) !== 0,
        });
      return changed;
    }, mode);
}

/** Returns the mode of directories that are made on the way: that of an octal number, as a usual umask leaves it. */
export function directoryModeOf(text: string): number {
  return /^[0-7]{1,5}$/.test(text) ? Number.parseInt(text, 8) & 0o755 : 0o755;
}

interface Action {
  readonly who: string;
  readonly sign: string;
  readonly what: string;
  readonly isProgram: boolean;
}

function applied(mode: number, { who, sign, what, isProgram }: Action): number {
  let result = mode;
  const isCopy = SHIFTS.has(what);
  for (const one of new Set(who)) {
    const shift = SHIFTS.get(one) ?? 0;
    const special = one === 'u' ? 0o4000 : one === 'g' ? 0o2000 : 0;
    let bits = permissions(mode, what, isProgram) << shift;
    if (what.includes('s')) bits |= special;
    if (what.includes('t') && one === 'o') bits |= 0o1000;
    // Rights of others are copied without the special bits, which stay then.
    const all = (7 << shift) | (isCopy ? 0 : special);
    if (sign === '+') result |= bits;
    else if (sign === '-') result &= ~bits;
    else result = (result & ~all) | bits;
  }
  return result;
}

function permissions(mode: number, what: string, isProgram: boolean): number {
  const copied = SHIFTS.get(what);
  if (copied !== undefined) return (mode >> copied) & 7;
  const mayRun = what.includes('x') || (what.includes('X') && isProgram);
  return (what.includes('r') ? 4 : 0) | (what.includes('w') ? 2 : 0) | (mayRun ? 1 : 0);
}
