/**
 * node scripts/record-builds.mjs: installs what is missing, builds, and writes down what dockerd makes of the table of
 * builds (test/build/table). To be run again when a case is new or has changed.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { command, prepare, using } from './prepare.mjs';

await command('record-builds', () => {
  if (process.getuid() !== 0) throw new Error('the table runs real containers: run it as root');
  prepare('bench', '28.5');
  // dockerd rewrites bridges and firewall rules: in a network namespace that goes with this process.
  const recorder = join(ROOT, 'dist', 'test', 'build', 'table', 'record.js');
  const { status } = spawnSync(...using('unshare', ['--net', '--mount', process.execPath, recorder]), {
    cwd: ROOT,
    stdio: 'inherit',
  });
  process.exitCode = status ?? 1;
});
