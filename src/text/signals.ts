/** Converts Linux signal names and numbers as clients write them. */
import { constants } from 'node:os';
import { invalid } from '../errors/engine-error.js';

export const SIGKILL = 9;
export const SIGTERM = 15;
const SIGRTMIN = 34;
const SIGRTMAX = 64;

/** Returns the number of `TERM`, `SIGTERM`, `15`, `RTMIN+3`; undefined for anything else, '' included. */
export function signalNumber(text: string): number | undefined {
  if (/^\d+$/.test(text)) {
    const number = Number(text);
    return number >= 1 && number <= SIGRTMAX ? number : undefined;
  }
  const name = text.toUpperCase().replace(/^SIG/, '');
  const realtime = /^RT(MIN|MAX)(?:([+-])(\d+))?$/.exec(name);
  if (realtime) {
    const offset = Number(`${realtime[2] ?? '+'}${realtime[3] ?? 0}`);
    const number = (realtime[1] === 'MIN' ? SIGRTMIN : SIGRTMAX) + offset;
    return number >= SIGRTMIN && number <= SIGRTMAX ? number : undefined;
  }
  return (constants.signals as Readonly<Record<string, number>>)[`SIG${name}`];
}

/** Like signalNumber, but throws invalid `invalid signal: X`, or that there is no such number. */
export function parseSignal(text: string): number {
  const number = signalNumber(text);
  if (number === undefined && text !== '0' && /^-?\d+$/.test(text))
    throw invalid(`the linux daemon does not support signal ${text}`, { code: 'INVALID_SIGNAL' });
  if (number === undefined) throw invalid(`invalid signal: ${text}`, { code: 'INVALID_SIGNAL' });
  return number;
}
