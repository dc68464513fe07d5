/**
 * Puts the compiled daemon and its pure JavaScript dependencies into few files, dist/bundle/: loading some hundred
 * modules one by one takes longer than all the rest of the daemon's start. Packages with native parts or with files that
 * they look for themselves stay outside.
 */
import { chmodSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const outdir = join(root, 'dist', 'bundle');

rmSync(outdir, { recursive: true, force: true });
await build({
  // The names stay beside each other: the worker pool finds entry.js next to itself.
  entryPoints: { main: join(root, 'dist/src/main.js'), entry: join(root, 'dist/src/workers/entry.js') },
  outdir,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  external: ['koffi', 'uWebSockets.js', 'piscina', 'dtrace-provider', 'mv', 'source-map-support'],
  // Bundled CommonJS packages still require Node's own modules.
  banner: { js: "import { createRequire as bundledRequire } from 'node:module'; const require = bundledRequire(import.meta.url);" },
  minifyWhitespace: true,
  legalComments: 'none',
  logLevel: 'warning',
});
chmodSync(join(outdir, 'main.js'), 0o755);
