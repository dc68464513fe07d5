/**
 * node FLAGS scripts/compile-program.mjs SCRIPT: keeps V8's code of the bundle's program in a file beside it. V8 takes
 * it again only with the flags that it was made with.
 */
import { writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { compileProgram } from '../dist/src/held-program.js';

const { code, file } = await compileProgram(pathToFileURL(process.argv[2]));
writeFileSync(file, code);
