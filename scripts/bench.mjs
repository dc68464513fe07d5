/**
 * npm run bench [-- --only NAME,... --engine NAME --rounds N --peer VERSION --before MAIN --history FILE]: installs
 * what is missing, builds, and compares the engine with dockerd, or with an earlier build, whose dist/bundle/main.js
 * is named. npm run bench -- --timeline NAME: draws where the time of one action goes;
 * npm run bench -- --floors: how far engined is from what disk, socket and sha256 take;
 * npm run bench -- --scale: what ten thousand containers and a hundred thousand images cost (docs/performance.md).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { peerOf } from './peers.mjs';
import { command, prepare, using } from './prepare.mjs';

await command('npm run bench', async () => {
  if (process.getuid() !== 0) throw new Error('the bench runs real containers: run it as root');
  const { peer, rest } = peerOf(process.argv.slice(2));
  prepare('bench', peer);
  // Both engines change bridges and firewall rules: in a network namespace that goes with this process.
  const child = spawn(
    ...using('unshare', ['--net', '--mount', process.execPath, join(ROOT, 'dist', 'bench', 'run.js'), ...rest]),
    { cwd: ROOT, stdio: 'inherit' },
  );
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
  const [code] = await once(child, 'exit');
  process.exitCode = code ?? 1;
});
