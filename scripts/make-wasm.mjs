/**
 * Makes src/logs/drivers/simple-lines-code.ts of the program beside it. It fetches the assembler, which nobody else
 * needs. The result is checked in. Plain Node.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, run } from './ensure-packages.mjs';

const SOURCE = join(ROOT, 'src/logs/drivers/simple-lines.wat');
const COLUMNS = 100;

const dir = mkdtempSync(join(tmpdir(), 'make-wasm-'));
try {
  const code = join(dir, 'code.wasm');
  run('npx', ['--yes', '-p', 'wabt@1.0.39', 'wat2wasm', SOURCE, '-o', code]);
  const lines = readFileSync(code, 'base64').match(new RegExp(`.{1,${COLUMNS}}`, 'g')) ?? [];
  const head = '/** Made by scripts/make-wasm.mjs of simple-lines.wat: the module in base64. */\n';
  const text = lines.map((line) => `  '${line}',\n`).join('');
  writeFileSync(SOURCE.replace(/\.wat$/, '-code.ts'), `${head}export const CODE = [\n${text}].join('');\n`);
} finally {
  rmSync(dir, { recursive: true });
}
