// Writes docs/configuration.md from the table of options. Run after `npm run build`.
import { mkdirSync, writeFileSync } from 'node:fs';
import { configurationDoc } from '../dist/src/config/configuration-doc.js';

mkdirSync(new URL('../docs/', import.meta.url), { recursive: true });
writeFileSync(new URL('../docs/configuration.md', import.meta.url), configurationDoc());
