/**
 * node FLAGS scripts/compile-program.mjs SCRIPT: keeps V8's code of the bundle's program in a file beside it. V8 takes
 * it again only with the flags that it was made with, so it is made as the daemon runs: with what src/main.ts resets.
 */
import { writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { pathToFileURL } from 'node:url';
import { compileProgram } from '../dist/src/held-program.js';

setFlagsFromString('--max-semi-space-size=0');
setFlagsFromString('--initial-heap-size=0');
const { code, file } = await compileProgram(pathToFileURL(process.argv[2]));
writeFileSync(file, code);
