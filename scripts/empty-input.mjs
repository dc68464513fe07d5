/**
 * npm run empty-input [-- --runs N --at-a-time N]: installs what is missing, builds, and repeats commands and streams
 * whose input ends early as often as one likes (default: 1000 with the CLI and as many on bare connections).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { command, prepare, using } from './prepare.mjs';

await command('npm run empty-input', async () => {
  if (process.getuid() !== 0) throw new Error('this runs real containers: run it as root');
  prepare('test');
  const program = join(ROOT, 'dist', 'test', 'support', 'empty-input.js');
  const child = spawn(...using('unshare', ['--net', '--mount', process.execPath, program, ...process.argv.slice(2)]), {
    cwd: ROOT,
    stdio: 'inherit',
  });
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
  const [code] = await once(child, 'exit');
  process.exitCode = code ?? 1;
});
