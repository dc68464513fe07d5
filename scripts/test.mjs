/**
 * npm test [-- part-of-a-path ...]: installs what is missing, builds, and runs the tests whose paths contain one of the
 * parts (default: all). The linter runs beside the first of them, and its findings are at the end of the output. Works
 * as the first command on a bare clone.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { command, prepare, using } from './prepare.mjs';
import { ROOT } from './ensure-packages.mjs';

await command('npm test', async () => {
  if (process.getuid() !== 0) throw new Error('the tests run real containers: run them as root');
  prepare(process.env.ENGINE_UNDER_TEST === 'dockerd' ? 'bench' : 'test');
  const linter = spawn('sh', ['-c', 'npm run --silent lint 2>&1'], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
    // That of types is a program of Go, which collects much while it reads what it needs to the end.
    env: { ...process.env, GOGC: 'off', GOMEMLIMIT: '2GiB' },
  });
  const linted = Promise.all([text(linter.stdout), once(linter, 'exit')]);
  const runner = [join(ROOT, 'scripts', 'run-tests.mjs'), ...process.argv.slice(2)];
  const tests = spawn(...using(process.execPath, runner), { cwd: ROOT, stdio: 'inherit' });
  // A signal from the terminal reaches the children too; their daemons must be ended before this process goes.
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.on(signal, () => {
      for (const child of [linter, tests]) child.kill(signal);
    });
  }
  const [code] = await once(tests, 'exit');
  process.exitCode = code ?? 1;
  const [findings, [lintCode]] = await linted;
  if (lintCode === 0) return;
  process.exitCode ||= 1;
  console.log(`\n✖ npm run lint\n${findings}`);
});
