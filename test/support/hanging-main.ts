#!/usr/bin/env node
/**
 * The daemon with an effect of an actor that never ends, so that a test can kill the daemon at that very point. The
 * file HANG_FILE names the effect, as `container.releasing before` or `after`, and says `hangs` when it is reached.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { DebugSignal } from '../../src/sys/process/debug-signal.js';
import { injectFaults, runCommandLine } from './bundled-program.js';

const debugSignal = DebugSignal.hold();
const { HANG_FILE = '' } = process.env;

function isDue(name: string, when: 'before' | 'after'): boolean {
  if (!existsSync(HANG_FILE)) return false;
  const [wanted = '', wantedWhen] = readFileSync(HANG_FILE, 'utf8').split(' ');
  if (!name.endsWith(`.${wanted}`) || wantedWhen !== when) return false;
  writeFileSync(HANG_FILE, 'hangs');
  return true;
}

injectFaults({
  transition: () => undefined,
  silenceMs: 600_000,
  async effect(name, run) {
    if (isDue(name, 'before')) return new Promise(() => undefined);
    const result = await run();
    return isDue(name, 'after') ? new Promise(() => undefined) : result;
  },
});
process.exitCode = await runCommandLine(process.argv.slice(2), debugSignal);
