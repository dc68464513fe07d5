#!/usr/bin/env node
/**
 * The daemon with faults in its actors. FAULTS_COUNT says how many, FAULTS_SEED which, and FAULTS_KINDS names the kinds
 * of actors. With FAULTS_HANGS, some effects never end. They begin when the file FAULTS_ARMED exists, which gets a line
 * for each.
 */
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { DebugSignal } from '../../src/sys/process/debug-signal.js';
import { injectFaults, runCommandLine } from './bundled-program.js';
import { randomNumbers } from './random-numbers.js';

const debugSignal = DebugSignal.hold();
const { FAULTS_COUNT = '0', FAULTS_SEED = '1', FAULTS_KINDS = '', FAULTS_HANGS = '', FAULTS_ARMED = '' } = process.env;
const kinds = new Set(FAULTS_KINDS.split(','));
const random = randomNumbers(Number(FAULTS_SEED));
/** One of so many steps fails. */
const ODDS = { transition: 24, effect: 10 };
const STALL_MS = 1500;
/** Effects that hang are given up after this time: longer than any effect that does something takes here. */
const SILENCE_MS = 20_000;
let left = Number(FAULTS_COUNT);
let isArmed = false;

function isDue(odds: number): boolean {
  isArmed ||= existsSync(FAULTS_ARMED);
  return isArmed && left > 0 && random(odds) === 0;
}

function note(what: string): void {
  left--;
  appendFileSync(FAULTS_ARMED, `${what}\n`);
}

const OUTCOMES = [
  'fails',
  'ends late',
  'ends late',
  ...(FAULTS_HANGS === '' ? [] : ['hangs before its work', 'hangs after its work']),
];
injectFaults({
  silenceMs: SILENCE_MS,
  transition(kind, state, event, when) {
    if (!kinds.has(kind) || event === 'xstate.stop' || !isDue(ODDS.transition)) return;
    note(`${kind} ${JSON.stringify(state)} ${when} ${event}`);
    throw new Error(`injected: ${when} ${event}`);
  },
  async effect(name, run) {
    if (![...kinds].some((kind) => name.includes(`.${kind}.`)) || !isDue(ODDS.effect)) return run();
    const how = OUTCOMES[random(OUTCOMES.length)] ?? 'ends late';
    note(`effect ${name} ${how}`);
    if (how === 'fails') throw new Error(`injected: ${name}`);
    if (how === 'hangs before its work') return new Promise(() => undefined);
    if (how === 'hangs after its work') {
      await run().catch(() => undefined);
      return new Promise(() => undefined);
    }
    try {
      return await run();
    } finally {
      await sleep(random(STALL_MS));
    }
  },
});
process.exitCode = await runCommandLine(process.argv.slice(2), debugSignal);
