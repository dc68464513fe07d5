/**
 * The program of the bundle, for a process with a main file of its own. Its modules, loaded one by one, would take a
 * second of processor time in each start.
 */
import { readdirSync } from 'node:fs';
import { loadProgram } from '../../src/held-program.js';

/** This file is in dist/test/support. */
const BUNDLE = new URL('../../bundle/', import.meta.url);

const script = readdirSync(BUNDLE).find((name) => /^engined-.*\.cjs$/.test(name));
if (script === undefined) throw new Error('the bundle has no program');

export const { injectFaults, runCommandLine } = loadProgram(new URL(script, BUNDLE));
