/**
 * npm run package [-- --output DIR] [--with-node] [--compression xz|none] [--version VERSION]: makes a Debian package
 * and a plain archive of the daemon for this kind of machine, in dist/package unless told otherwise.
 *
 * The package needs nodejs 20 or later, which Debian has since trixie. With --with-node it brings the Node that runs
 * this script, for releases that have an older one; a start is then the fastest, too, because V8's code was made by it.
 * Both are reproducible: times are those of SOURCE_DATE_EPOCH, else of the last commit. Plain Node.
 */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { lutimesSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { installPackages, ROOT, run } from './ensure-packages.mjs';
import { command, prepare } from './prepare.mjs';

const NAME = 'engined';
/** As Debian's tools have it: whoever builds the package says who that is. */
const { DEBFULLNAME = 'The engined developers', DEBEMAIL = 'engined@localhost' } = process.env;
const MAINTAINER = `${DEBFULLNAME} <${DEBEMAIL}>`;
/** Findings of lintian about what is as it should be. */
const OVERRIDES = {
  always: ['bogus-mail-host *', 'bogus-mail-host-in-debian-changelog *'],
  withNode: ['embedded-library * [usr/lib/engined/bin/node]', 'unstripped-binary-or-object [usr/lib/engined/bin/node]'],
};
/** Tools of koffi's own, which nobody runs here. */
const TOOLS = /\/(cnoke|trampolines)\.cjs$/;
/** Files for those who watch the daemon, or have SELinux. */
const EXAMPLES = ['prometheus/engined.rules.yml', 'grafana/engined.json', 'selinux/engined.cil'];
/** The unit for the systemd of an ordinary user. */
const USER_UNIT = ['user', 'engined.service'];
const ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' };
/** Where Debian has a program of the requirements under another name than the package, and what is not needed. */
const NEEDS = new Map([
  ['always', 'Depends'],
  ['supervisor', 'Depends'],
  ['iptables', 'Depends'],
  ['nftables', 'Recommends'],
  ['apparmor', 'Recommends'],
  ['init', 'Recommends'],
  ['library', 'Recommends'],
  ['rootless', 'Suggests'],
  ['fuse-overlayfs', 'Suggests'],
  ['optional', 'Suggests'],
]);

/** The commit that is packed; it is a release if it has the tag of the version. */
function commitOf(version) {
  const git = (...args) => execFileSync('git', ['-C', ROOT, ...args], { encoding: 'utf8' }).trim();
  return {
    name: git('rev-parse', '--short=7', 'HEAD'),
    epoch: git('log', '-1', '--format=%ct'),
    isReleased: git('tag', '--points-at', 'HEAD').split('\n').includes(`v${version}`),
  };
}

/** The facts of a package: what it is, and of when. */
function factsOf(wanted) {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const { SOURCE_DATE_EPOCH } = process.env;
  // Sources that are no repository, as from an archive, have the time of their last release.
  const commit = existsSync(join(ROOT, '.git')) ? commitOf(version) : undefined;
  const epoch = Number(
    SOURCE_DATE_EPOCH ?? commit?.epoch ?? Math.floor(statSync(join(ROOT, 'package.json')).mtimeMs / 1000),
  );
  const day = new Date(epoch * 1000).toISOString().slice(0, 10);
  // A version that was not released sorts before the release, and says of which commit it is.
  const mark = commit === undefined ? '' : `.${commit.name}`;
  const own = commit?.isReleased === true ? version : `${version}~git${day.replaceAll('-', '')}${mark}`;
  const architecture = ARCHITECTURES[process.arch];
  if (architecture === undefined) throw new Error(`there is no package for ${process.arch}`);
  return { version: wanted ?? own, epoch, day, architecture };
}

function write(path, content, mode = 0o644) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  chmodSync(path, mode);
}

function copy(from, to, mode = 0o644) {
  write(to, readFileSync(from), mode);
}

/** Compresses without a name and a time in it. */
const zipped = (text) => gzipSync(text, { level: 9 });

/** The program with the native parts for this machine, as they lie in a directory `engined`. */
function stageProgram(directory, { withNode, place }) {
  for (const name of readdirSync(join(ROOT, 'dist', 'bundle')))
    copy(
      join(ROOT, 'dist', 'bundle', name),
      join(directory, 'dist', 'bundle', name),
      name === 'main.js' ? 0o755 : 0o644,
    );
  copy(join(ROOT, 'package.json'), join(directory, 'package.json'));
  // Packages with native parts bring what Node loads, and the parts for this machine.
  const uws = new RegExp(`uws_linux_${process.arch}_${withNode ? process.versions.modules : '\\d+'}\\.node$`);
  for (const name of ['koffi', '@koromix', 'uWebSockets.js']) {
    const from = join(ROOT, 'node_modules', name);
    for (const path of readdirSync(from, { recursive: true, withFileTypes: true })) {
      const file = join(path.parentPath, path.name);
      const isWanted = file.endsWith('.node')
        ? uws.test(file) || file.includes(`/linux_${process.arch}/`)
        : /\.(c|m)?js$|\/package\.json$/.test(file);
      if (path.isFile() && isWanted && !TOOLS.test(file))
        copy(file, join(directory, 'node_modules', name, relative(from, file)));
    }
  }
  if (!withNode) return;
  copy(process.execPath, join(directory, 'bin', 'node'), 0o755);
  const main = join(directory, 'dist', 'bundle', 'main.js');
  const text = readFileSync(main, 'utf8');
  const [, line] = text.split('\n');
  if (line.split(' node ').length !== 2) throw new Error(`${main} is not started as expected`);
  write(
    main,
    text.replace(
      line,
      line.replace(' node ', () => ` ${place}/bin/node `),
    ),
    0o755,
  );
}

/** Licences of the packages whose code is in the program. */
function licences() {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'node_modules', '.package-lock.json'), 'utf8'));
  return Object.entries(packages)
    .filter(([, { dev, optional }]) => dev !== true && optional !== true)
    .map(([path, { version }]) => {
      const directory = join(ROOT, path);
      const { license = 'unknown' } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
      const file = readdirSync(directory).find((name) => /^licen[cs]e/i.test(name));
      const text = file === undefined ? '' : readFileSync(join(directory, file), 'utf8');
      return `${path.split('node_modules/').at(-1)} ${version} (${license})\n\n${text.trim()}\n`;
    })
    .join(`\n${'-'.repeat(72)}\n\n`);
}

/** Manual pages and completions, below `share`. */
async function stageShare(share, facts, zshDirectory) {
  const from = (name) => import(new URL(`../dist/src/config/${name}.js`, import.meta.url).href);
  const { programManPage, configurationManPage } = await from('man-pages');
  const { bashCompletion, zshCompletion } = await from('completions');
  const page = { version: facts.version, date: facts.day };
  write(join(share, 'man', 'man8', 'engined.8.gz'), zipped(programManPage(page)));
  write(join(share, 'man', 'man5', 'engined-daemon.json.5.gz'), zipped(configurationManPage(page)));
  const rootless = readFileSync(join(ROOT, 'packaging', 'engined-rootless.1'));
  write(join(share, 'man', 'man1', 'engined-rootless.1.gz'), zipped(rootless));
  write(join(share, 'bash-completion', 'completions', NAME), bashCompletion());
  write(join(share, 'zsh', zshDirectory, `_${NAME}`), zshCompletion());
}

/** A file of packaging/ that starts the program, with the place where that is. */
function naming(program, ...path) {
  return readFileSync(join(ROOT, 'packaging', ...path), 'utf8').replace('/usr/bin/env engined', program);
}

function copyright() {
  return `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ${NAME}

Files: *
Copyright: 2026 The engined developers
License: Apache-2.0
 On Debian systems the full text of the licence is in /usr/share/common-licenses/Apache-2.0.
Comment: The program has code of other packages in it; their licences are in third-party-licences.gz beside this file.
`;
}

function changelog({ version, epoch }) {
  return `${NAME} (${version}) unstable; urgency=medium

  * See the history of the repository.

 -- ${MAINTAINER}  ${new Date(epoch * 1000).toUTCString().replace('GMT', '+0000')}
`;
}

/** Fields of the control file. Programs that the daemon needs are those of packaging/requirements.json. */
function control(tree, { version, architecture }, withNode) {
  const requirements = JSON.parse(readFileSync(join(ROOT, 'packaging', 'requirements.json'), 'utf8'));
  const lists = { Depends: new Set(['libc6', 'libstdc++6', ...(withNode ? [] : ['nodejs (>= 20)'])]) };
  for (const { need, package: name } of requirements) {
    const field = NEEDS.get(need);
    if (field === undefined) throw new Error(`no field of the package says that it needs ${name} for ${need}`);
    (lists[field] ??= new Set()).add(name);
  }
  const kept = [...lists.Depends];
  const relations = Object.entries(lists).map(([field, names]) => {
    const own = [...names].filter((name) => field === 'Depends' || !kept.includes(name));
    return `${field}: ${own.sort().join(', ')}`;
  });
  const size = Number(execFileSync('du', ['-sk', '--apparent-size', tree], { encoding: 'utf8' }).split('\t')[0]);
  return [
    ...[`Package: ${NAME}`, `Version: ${version}`, `Architecture: ${architecture}`, `Maintainer: ${MAINTAINER}`],
    ...[`Installed-Size: ${size}`, ...relations, 'Section: admin', 'Priority: optional'],
    'Description: container engine daemon with the Docker-compatible Engine API',
    ' Unmodified clients such as the docker CLI, compose and buildx talk to it.',
    ' Containers run under containerd and an OCI runtime, which it starts and',
    ' watches itself.',
    '',
  ].join('\n');
}

async function debianTree(tree, facts, { withNode }) {
  stageProgram(join(tree, 'usr', 'lib', NAME), { withNode, place: `/usr/lib/${NAME}` });
  mkdirSync(join(tree, 'usr', 'bin'), { recursive: true });
  symlinkSync(`../lib/${NAME}/dist/bundle/main.js`, join(tree, 'usr', 'bin', NAME));
  await stageShare(join(tree, 'usr', 'share'), facts, 'vendor-completions');
  const units = join(tree, 'usr', 'lib', 'systemd');
  for (const name of ['engined.socket', 'engined.service'])
    write(join(units, 'system', name), naming('/usr/bin/engined', 'systemd', name));
  write(join(units, ...USER_UNIT), naming('/usr/bin/engined', 'systemd', ...USER_UNIT));
  copy(join(ROOT, 'packaging', 'engined-rootless'), join(tree, 'usr', 'bin', 'engined-rootless'), 0o755);
  write(join(tree, 'usr', 'libexec', NAME, 'docker'), naming('/usr/bin/engined', 'docker'), 0o755);
  copy(join(ROOT, 'packaging', 'sysusers.conf'), join(tree, 'usr', 'lib', 'sysusers.d', 'engined.conf'));
  copy(join(ROOT, 'packaging', 'tmpfiles.conf'), join(tree, 'usr', 'lib', 'tmpfiles.d', 'engined.conf'));
  copy(join(ROOT, 'packaging', 'daemon.json'), join(tree, 'etc', 'engine', 'daemon.json'));
  const docs = join(tree, 'usr', 'share', 'doc', NAME);
  write(join(docs, 'copyright'), copyright());
  write(join(docs, 'changelog.gz'), zipped(changelog(facts)));
  write(join(docs, 'third-party-licences.gz'), zipped(licences()));
  for (const name of readdirSync(join(ROOT, 'docs')).filter((file) => file.endsWith('.md')))
    copy(join(ROOT, 'docs', name), join(docs, name));
  const overrides = [...OVERRIDES.always, ...(withNode ? OVERRIDES.withNode : [])];
  write(join(tree, 'usr/share/lintian/overrides', NAME), overrides.map((line) => `${NAME}: ${line}\n`).join(''));
  const reload = join('engined.service.d', 'notify-reload.conf');
  copy(join(ROOT, 'packaging', 'systemd', reload), join(docs, 'examples', reload));
  for (const path of EXAMPLES) copy(join(ROOT, 'packaging', path), join(docs, 'examples', basename(path)));

  const debian = join(tree, 'DEBIAN');
  mkdirSync(debian);
  for (const name of ['postinst', 'prerm', 'postrm'])
    copy(join(ROOT, 'packaging', 'debian', name), join(debian, name), 0o755);
  write(join(debian, 'conffiles'), '/etc/engine/daemon.json\n');
  write(join(debian, 'md5sums'), sums(tree));
  write(join(debian, 'control'), control(tree, facts, withNode));
}

function sums(tree) {
  const script = "find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\\0' | sort -z | xargs -0 md5sum";
  return execFileSync('sh', ['-c', script], { cwd: tree, encoding: 'utf8' });
}

async function archiveTree(tree, facts, { withNode }) {
  stageProgram(join(tree, 'lib', NAME), { withNode, place: `/usr/local/lib/${NAME}` });
  await stageShare(join(tree, 'share'), facts, 'site-functions');
  for (const name of ['engined.socket', 'engined.service'])
    write(join(tree, 'systemd', name), naming('/usr/local/bin/engined', 'systemd', name));
  write(join(tree, 'systemd', ...USER_UNIT), naming('/usr/local/bin/engined', 'systemd', ...USER_UNIT));
  copy(join(ROOT, 'packaging', 'engined-rootless'), join(tree, 'bin', 'engined-rootless'), 0o755);
  write(join(tree, 'libexec', NAME, 'docker'), naming('/usr/local/bin/engined', 'docker'), 0o755);
  copy(join(ROOT, 'packaging', 'daemon.json'), join(tree, 'daemon.json'));
  copy(join(ROOT, 'packaging', 'archive', 'install.sh'), join(tree, 'install.sh'), 0o755);
  for (const path of EXAMPLES) copy(join(ROOT, 'packaging', path), join(tree, 'examples', basename(path)));
  write(join(tree, 'third-party-licences'), licences());
  copy(join(ROOT, 'README.md'), join(tree, 'README.md'));
  cpSync(join(ROOT, 'docs'), join(tree, 'docs'), { recursive: true });
}

/** Gives everything one time and ordinary modes. */
function settle(path, epoch) {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat?.isDirectory()) {
    chmodSync(path, 0o755);
    for (const name of readdirSync(path)) settle(join(path, name), epoch);
  }
  lutimesSync(path, epoch, epoch);
}

async function make(directory, output, facts, options) {
  const debian = join(directory, 'debian');
  await debianTree(debian, facts, options);
  settle(debian, facts.epoch);
  const deb = join(output, `${NAME}_${facts.version}_${facts.architecture}.deb`);
  process.env.SOURCE_DATE_EPOCH = String(facts.epoch);
  run('dpkg-deb', ['--root-owner-group', `-Z${options.compression}`, '--build', debian, deb]);

  const archive = join(directory, `${NAME}-${facts.version}`);
  await archiveTree(archive, facts, options);
  settle(archive, facts.epoch);
  const tar = join(output, `${basename(archive)}-linux-${facts.architecture}.tar`);
  const owner = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--format=gnu'];
  run('tar', ['-C', directory, ...owner, '-cf', tar, basename(archive)]);
  if (options.compression === 'none') return [deb, tar];
  run('xz', ['-T0', '-f', tar]);
  return [deb, `${tar}.xz`];
}

await command('npm run package', async () => {
  const { values } = parseArgs({
    options: {
      output: { type: 'string', default: join(ROOT, 'dist', 'package') },
      'with-node': { type: 'boolean', default: false },
      compression: { type: 'string', default: 'xz' },
      version: { type: 'string' },
      built: { type: 'boolean', default: false },
    },
  });
  // Tests have the build that they are part of.
  if (!values.built) prepare('run');
  installPackages({ 'dpkg-deb': 'dpkg', xz: 'xz-utils', git: 'git' });
  mkdirSync(values.output, { recursive: true });
  const directory = mkdtempSync(join(tmpdir(), 'engined-package-'));
  const clean = () => rmSync(directory, { recursive: true, force: true });
  for (const signal of ['SIGINT', 'SIGTERM'])
    process.on(signal, () => {
      clean();
      process.exit(1);
    });
  try {
    const options = { withNode: values['with-node'], compression: values.compression };
    for (const path of await make(directory, values.output, factsOf(values.version), options)) console.log(path);
  } finally {
    clean();
  }
});
