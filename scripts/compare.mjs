/**
 * npm run compare [-- PART... --peer VERSION]: installs what is missing, builds, and sends the same requests to the
 * engine and to dockerd.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { peerOf } from './peers.mjs';
import { command, prepare, using } from './prepare.mjs';

await command('npm run compare', async () => {
  if (process.getuid() !== 0) throw new Error('the comparison runs real containers: run it as root');
  const { peer, rest } = peerOf(process.argv.slice(2));
  prepare('bench', peer);
  // dockerd rewrites bridges and firewall rules: in a network namespace that goes with this process.
  const child = spawn(
    ...using('unshare', [
      '--net',
      '--mount',
      process.execPath,
      join(ROOT, 'dist', 'test', 'compare', 'run.js'),
      ...rest,
    ]),
    { cwd: ROOT, stdio: 'inherit' },
  );
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
  const [code] = await once(child, 'exit');
  process.exitCode = code ?? 1;
});
