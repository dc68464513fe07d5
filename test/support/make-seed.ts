/** node make-seed.js: makes the files of seed.ts. */
import { ensureSeed } from './seed.js';

await ensureSeed();
