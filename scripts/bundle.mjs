/**
 * Puts the compiled daemon and its pure JavaScript dependencies into few files, dist/bundle/: loading some hundred
 * modules one by one takes longer than all the rest of the daemon's start. V8's code of the program and of the threads
 * is kept as well, which saves a sixth of the start's processor time and a third of that of a thread's. Packages with
 * native parts stay outside.
 *
 * A running daemon needs none of these files again: what it may need later is in memory since its start. So worker
 * threads have one text with all their tasks, and rarely used packages are texts within the bundle.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync } from 'node:zlib';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const outdir = join(root, 'dist', 'bundle');
/** A daemon that starts and ends takes less than a second of processor time. */
const REHEARSAL_MS = 120_000;
/** So many of its last lines are shown when it fails. */
const SHOWN_LINES = 20;
const compiled = (path) => join(root, 'dist', 'src', path);
const common = {
  bundle: true,
  platform: 'node',
  target: 'node20',
  minifyWhitespace: true,
  legalComments: 'none',
  logLevel: 'warning',
};
/** Not ours to bundle: native, or optional and not installed. */
const external = ['uWebSockets.js', '@napi-rs/nice'];
/**
 * The logger looks for these, for what the daemon does not do: probes, files that it turns over, places in sources.
 * They and what they load would be compiled anew at each start.
 */
const ABSENT = /^(dtrace-provider|mv|source-map-support)$/;

/** Replaces a piece of a dependency's text. Throws when another version of it no longer has the piece. */
function replaced(path, piece, by) {
  const text = readFileSync(path, 'utf8');
  if (text.split(piece).length !== 2) throw new Error(`${path} does not have ${piece} just once: look at it anew`);
  return { contents: text.replace(piece, () => by), loader: 'js' };
}

/** In a thread: piscina's handler is our entry, whatever file it asks for, and koffi is what the process has loaded. */
const threadParts = {
  name: 'thread-parts',
  setup({ onLoad, onResolve }) {
    onLoad({ filter: /piscina\/dist\/worker\.js$/ }, ({ path }) =>
      replaced(path, 'require(s)', `require(${JSON.stringify(compiled('workers/entry.js'))})`),
    );
    onResolve({ filter: /^koffi$/ }, () => ({ path: 'koffi', namespace: 'held' }));
    onLoad({ filter: /^koffi$/, namespace: 'held' }, () => ({
      contents:
        'const loaded = { exports: {} }; process.dlopen(loaded, ' +
        "require('node:worker_threads').workerData.library); module.exports = loaded.exports;",
    }));
  },
};

/**
 * In the process: the native part of koffi is loaded without koffi's way to find it, which takes six times as long. On
 * what is not glibc, koffi finds another one.
 */
const processParts = {
  name: 'process-parts',
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^koffi$/, namespace: 'file' }, () => ({ path: 'koffi', namespace: 'native' }));
    onLoad({ filter: /^koffi$/, namespace: 'native' }, () => ({
      contents: `const { arch } = process;
try {
  module.exports = require(\`@koromix/koffi-linux-\${arch}/linux_\${arch}/koffi.node\`);
} catch {
  module.exports = require('koffi');
}`,
    }));
  },
};

/**
 * In the daemon: piscina starts threads from text, and YAML is parsed, and requests are traced, by code that is
 * compiled when it is used for the first time. Messages are described when one of their file is used.
 */
const daemonParts = {
  name: 'daemon-parts',
  setup({ onLoad, onResolve }) {
    onResolve({ filter: ABSENT }, () => ({ path: 'absent', namespace: 'absent' }));
    onLoad({ filter: /^absent$/, namespace: 'absent' }, () => ({ contents: 'module.exports = null;' }));
    onResolve({ filter: /^node:worker_threads$/ }, ({ importer }) =>
      importer.includes('/piscina/dist/worker_pool/') ? { path: compiled('workers/held-worker.js') } : undefined,
    );
    // Nobody sees where a failed call was made, which V8 would look for in the whole program at each end.
    onLoad({ filter: /grpc-js\/build\/src\/call\.js$/ }, ({ path }) =>
      replaced(path, '`${error.stack}\\nfor call at\\n${callerStack}`', 'String(error)'),
    );
    onLoad({ filter: /grpc-js\/build\/src\/client\.js$/ }, ({ path }) =>
      replaced(path, '_a = error.stack', '_a = undefined'),
    );
    // V8 would optimize the decoder for the descriptions of messages, in each start anew.
    onLoad({ filter: /protobuf\/dist\/esm\/codegenv2\/file\.js$/ }, ({ path }) =>
      replaced(path, 'base64Decode(b64)', "Buffer.from(b64, 'base64')"),
    );
    const lazy = (filter, names) =>
      onLoad({ filter }, async ({ path }) => {
        // A text that is compiled later cannot use import().
        const supported = { 'dynamic-import': false };
        const options = { ...common, supported, entryPoints: [path], format: 'cjs', write: false };
        return { contents: lazily((await build(options)).outputFiles[0].text, names) };
      });
    onResolve({ filter: /\/\w+_pb\.js$/, namespace: 'file' }, ({ path, importer, resolveDir }) =>
      importer.startsWith(compiled(''))
        ? { path: relative(root, join(resolveDir, path)), namespace: 'on-first-use' }
        : undefined,
    );
    onLoad({ filter: /./, namespace: 'on-first-use' }, ({ path }) => ({
      contents: onFirstUse(join(root, path)),
      resolveDir: root,
    }));
    lazy(/\/runtime\/yaml\.js$/, ['parseYaml']);
    lazy(/\/telemetry\/traces\.js$/, ['openTraces']);
  },
};

/** In the main file: the command line comes from the program's script. */
const mainParts = (program) => ({
  name: 'main-parts',
  setup({ onLoad }) {
    onLoad({ filter: /\/command-line\.js$/ }, () => ({
      contents: `import { loadProgram } from './held-program.js';
export const { runCommandLine } = loadProgram(new URL(${JSON.stringify(basename(program))}, import.meta.url));`,
    }));
  },
});

/**
 * A module of functions whose code is packed until the first of them is called: a text would be in memory twice, with
 * the program's text and as a string of it.
 */
function lazily(text, names) {
  const functions = names.map((name) => `export const ${name} = (...args) => load().${name}(...args);`);
  const packed = brotliCompressSync(text).toString('base64');
  return `import { brotliDecompressSync } from 'node:zlib';
let exported;
const load = () => {
  if (exported === undefined) {
    const module = { exports: {} };
    const text = brotliDecompressSync(Buffer.from(${JSON.stringify(packed)}, 'base64')).toString();
    new Function('module', 'exports', 'require', text)(module, module.exports, require);
    exported = module.exports;
  }
  return exported;
};
${functions.join('\n')}`;
}

/**
 * A module with the enumerations of the generated one at `path`, whose other constants are made when the first of them
 * is used: decoding the descriptions of all messages takes a tenth of a start, which needs few of them.
 */
function onFirstUse(path) {
  const text = readFileSync(path, 'utf8');
  const enumerations = [...text.matchAll(/^export (var (\w+);\n\(function [^]*?^\}\)\(.*;)$/gm)];
  const names = [...text.matchAll(/^export const (\w+)/gm)].map(([, name]) => name);
  return `${enumerations.map(([, code, name]) => `${code}\nexports.${name} = ${name};`).join('\n')}
let held;
const get = (name) => (held ??= require(${JSON.stringify(path)}))[name];
for (const name of ${JSON.stringify(names)})
  Object.defineProperty(exports, name, { enumerable: true, get: () => get(name) });`;
}

/** Returns the facts of this build: the commit if there is a repository, and a time that SOURCE_DATE_EPOCH can fix. */
function buildFacts() {
  const { version, engineVersion } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const epoch = process.env.SOURCE_DATE_EPOCH;
  const time = epoch === undefined ? new Date() : new Date(Number(epoch) * 1000);
  return { version, engineVersion, commit: commit(), time: time.toISOString() };
}

function commit() {
  // A repository around this directory would be another one's.
  if (!existsSync(join(root, '.git'))) return '';
  try {
    return execFileSync('git', ['-C', root, 'rev-parse', '--short=7', 'HEAD'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return ''; // There is no git, or it does not trust the directory's owner.
  }
}

rmSync(outdir, { recursive: true, force: true });
mkdirSync(outdir, { recursive: true });
const thread = await build({
  ...common,
  entryPoints: { thread: join(root, 'node_modules/piscina/dist/worker.js') },
  entryNames: '[name]-[hash]',
  outdir,
  outExtension: { '.js': '.cjs' },
  format: 'cjs',
  write: false,
  external,
  plugins: [threadParts],
  banner: { js: '(function (require, exports) {' },
  footer: { js: '})' },
});
const [{ path: threadPath, contents: threadText }] = thread.outputFiles;
writeFileSync(threadPath, threadText);
const { outputFiles } = await build({
  ...common,
  entryPoints: { engined: compiled('command-line.js') },
  entryNames: '[name]-[hash]',
  outdir,
  outExtension: { '.js': '.cjs' },
  format: 'cjs',
  write: false,
  external: [...external, 'koffi'],
  plugins: [processParts, daemonParts],
  define: {
    // piscina makes the name of its thread's file from it, which nobody opens.
    __dirname: '"/"',
    'import.meta.url': 'programUrl',
    ENGINED_THREAD: JSON.stringify(basename(threadPath)),
    ENGINED_BUILD: JSON.stringify(JSON.stringify(buildFacts())),
  },
  banner: { js: '(function (module, require, programUrl) {' },
  footer: { js: '})' },
});
const [{ path: programPath, contents }] = outputFiles;
writeFileSync(programPath, contents);
// As a CommonJS module it runs, and resets V8's flags, before Node loads anything for it.
writeFileSync(join(outdir, 'package.json'), '{"type":"commonjs"}\n');
await build({
  ...common,
  entryPoints: { main: compiled('main.js') },
  outdir,
  format: 'cjs',
  external: ['koffi'],
  plugins: [processParts, mainParts(programPath)],
  define: { 'import.meta.url': 'mainUrl' },
  banner: { js: "const mainUrl = require('node:url').pathToFileURL(__filename).href;" },
});

/**
 * Node raises the soft limit of open files as it starts, but containers shall inherit the limit that the daemon was
 * started with. So a shell notes that limit before Node runs. Node itself reads the second line as a string and a
 * comment.
 */
const main = join(outdir, 'main.js');
const [, program] = /^#!\/usr\/bin\/env -S -u NODE_OPTIONS node (.*\n[^]*)$/.exec(readFileSync(main, 'utf8')) ?? [];
if (program === undefined) throw new Error('src/main.ts does not begin with the command that runs it');
const [flags, ...lines] = program.split('\n');
const environment = 'unset NODE_OPTIONS; export ENGINED_SOFT_NOFILE="$(ulimit -Sn)"';
const start = `${environment}; exec node ${flags} "$0" "$@"`;
writeFileSync(main, ['#!/bin/sh', `':' //; ${start}`, ...lines].join('\n'));
chmodSync(main, 0o755);

compileProgram();

/**
 * Has V8's code of the program kept. What runs for that is root only in its own user namespace, so that it cannot
 * change this machine, and its processes end with it. Where that is not allowed, nothing runs and less code is kept.
 */
function compileProgram() {
  // V8 takes the code only with the flags with which the daemon runs.
  const program = join(root, 'scripts', 'compile-program.mjs');
  const compile = [process.execPath, ...flags.split(' '), program, programPath, threadPath];
  const apart = ['--map-root-user', '--net', '--mount', '--mount-proc', '--pid', '--fork', '--kill-child'];
  const directory = mkdtempSync(join(tmpdir(), 'engined-build-'));
  try {
    const env = { PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
    const stdio = ['ignore', 'pipe', 'pipe'];
    execFileSync('unshare', [...apart, ...compile, directory], {
      env,
      stdio,
      timeout: REHEARSAL_MS,
      maxBuffer: 2 ** 24,
    });
  } catch ({ message, stdout, stderr }) {
    const said = `${stdout ?? ''}${stderr ?? ''}`.trimEnd().split('\n').slice(-SHOWN_LINES).join('\n');
    const reason = message.split('\n')[0];
    console.warn(`the daemon was not run to keep its code, so a start will take some 50 ms more: ${reason}\n${said}`);
    execFileSync(compile[0], compile.slice(1), { stdio: ['ignore', 'inherit', 'inherit'] });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
