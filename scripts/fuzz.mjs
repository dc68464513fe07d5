/**
 * npm run fuzz [-- --cases N] [--seed N]: sends expensive texts to every function that reads texts of others, and the
 * slowest of them to a daemon. Prints the slowest texts and the longest wait of `_ping`.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { command, prepare, using } from './prepare.mjs';
import { ROOT } from './ensure-packages.mjs';

await command('npm run fuzz', async () => {
  const { values } = parseArgs({
    options: { cases: { type: 'string', default: '1000000' }, seed: { type: 'string', default: '1' } },
  });
  prepare('test');
  const dir = mkdtempSync(join(tmpdir(), 'fuzz-'));
  try {
    const report = join(dir, 'report.txt');
    const env = { ...process.env, COST_CASES: values.cases, COST_SEED: values.seed, COST_REPORT: report };
    const { status } = spawnSync(...using(process.execPath, [join(ROOT, 'scripts', 'run-tests.mjs'), 'cost-fuzz']), {
      cwd: ROOT,
      env,
      stdio: 'inherit',
    });
    if (existsSync(report)) process.stdout.write(readFileSync(report, 'utf8'));
    process.exitCode = status ?? 1;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});
