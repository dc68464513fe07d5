/**
 * npm test [-- part-of-a-path ...]: installs what is missing, builds, lints, and runs the tests whose paths contain one
 * of the parts (default: all). Works as the first command on a bare clone.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { command, prepare, step } from './prepare.mjs';
import { ROOT } from './ensure-packages.mjs';

await command('npm test', async () => {
  if (process.getuid() !== 0) throw new Error('the tests run real containers: run them as root');
  prepare(process.env.ENGINE_UNDER_TEST === 'dockerd' ? 'bench' : 'test');
  step('npm', ['run', '--silent', 'lint']);
  const child = spawn(process.execPath, [join(ROOT, 'scripts', 'run-tests.mjs'), ...process.argv.slice(2)], {
    cwd: ROOT,
    stdio: 'inherit',
  });
  // A signal from the terminal reaches the child too; its daemons must be ended before this process goes.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
  const [code] = await once(child, 'exit');
  process.exitCode = code ?? 1;
});
