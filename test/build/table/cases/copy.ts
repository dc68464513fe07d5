/** COPY: which files come, under which names, and what is there already. */
import { type Files, scratch, shell, stages, type TableCase } from '../case.js';

const TREE: Files = {
  'd/': { mode: 0o750 },
  'd/a.txt': 'a',
  'd/b.md': { text: 'b', mode: 0o600 },
  'd/sub/': { mode: 0o700 },
  'd/sub/c.txt': 'c',
  'd/.hidden': 'h',
  'd/empty/': {},
  'e/a.txt': 'other a',
  'e/z': 'z',
  f: 'f',
};

const NAMES: readonly TableCase[] = [
  { name: 'copy a file to a name', dockerfile: scratch('COPY f /g'), files: TREE },
  { name: 'copy a file into a directory', dockerfile: scratch('COPY f /x/y/'), files: TREE },
  { name: 'copy a file below new directories', dockerfile: scratch('COPY f /x/y/z'), files: TREE },
  { name: 'copy into a present directory', dockerfile: scratch('COPY d /x', 'COPY f /x'), files: TREE },
  { name: 'copy to relative places', dockerfile: scratch('COPY f one', 'COPY f ./two', 'COPY f three/'), files: TREE },
  { name: 'copy below a working directory', dockerfile: scratch('WORKDIR /w', 'COPY f .', 'COPY f x/'), files: TREE },
  {
    name: 'copy above a working directory',
    dockerfile: scratch('WORKDIR /w/v', 'COPY f ..', 'COPY f ../g'),
    files: TREE,
  },
  { name: 'copy several files', dockerfile: scratch('COPY f d/a.txt /x/'), files: TREE },
  { name: 'copy several files to no directory', dockerfile: scratch('COPY f d/a.txt /x'), files: TREE },
  { name: 'copy several files to .', dockerfile: scratch('WORKDIR /x', 'COPY f d/a.txt .'), files: TREE },
  { name: 'copy several files to ./', dockerfile: scratch('WORKDIR /x', 'COPY f d/a.txt ./'), files: TREE },
  { name: 'copy a directory', dockerfile: scratch('COPY d /x'), files: TREE },
  { name: 'copy a directory with slashes', dockerfile: scratch('COPY d/ /x/'), files: TREE },
  { name: 'copy a directory and a dot', dockerfile: scratch('COPY d/. /x/.'), files: TREE },
  { name: 'copy directories into one', dockerfile: scratch('COPY d e f /x/'), files: TREE },
  { name: 'copy the context', dockerfile: scratch('COPY . /'), files: TREE },
  { name: 'copy the context below', dockerfile: scratch('COPY . /ctx'), files: TREE },
  { name: 'copy the context by a slash', dockerfile: scratch('COPY / /ctx'), files: TREE },
  {
    name: 'copy with absolute and rising sources',
    dockerfile: scratch('COPY /f ../d/a.txt d/../e/z /x/'),
    files: TREE,
  },
  { name: 'copy names in JSON', dockerfile: scratch('COPY ["a b", "ü", "/x y/"]'), files: { 'a b': '1', ü: '2' } },
  { name: 'copy names in quotes', dockerfile: scratch('COPY "a b" /x/'), files: { 'a b': '1' }, fails: true },
  { name: 'copy names of variables', dockerfile: scratch('ENV A=f B=/x', 'COPY ${A} $B/${NO:-q}'), files: TREE },
  { name: 'copy one source twice', dockerfile: scratch('COPY f f /x/'), files: TREE },
  { name: 'copy sources of one name', dockerfile: scratch('COPY d/a.txt e/a.txt /x/'), files: TREE },
  { name: 'copy nothing that is there', dockerfile: scratch('COPY missing /x'), files: TREE, fails: true },
  { name: 'copy below what is no directory', dockerfile: scratch('COPY f/x /x'), files: TREE, fails: true },
  { name: 'copy an empty directory', dockerfile: scratch('COPY d/empty /x'), files: TREE },
  { name: 'copy an empty context', dockerfile: scratch('COPY . /'), files: { '.dockerignore': '*' } },
  { name: 'copy without a source', dockerfile: scratch('COPY /x'), fails: true },
  {
    name: 'copy long names',
    dockerfile: scratch('COPY . /x/'),
    files: { [`${'deep/'.repeat(30)}${'n'.repeat(150)}`]: 'long' },
  },
];

const PATTERNS: readonly TableCase[] = [
  { name: 'pattern of files', dockerfile: scratch('COPY d/*.txt /x/'), files: TREE },
  { name: 'pattern of everything', dockerfile: scratch('COPY d/* /x/'), files: TREE },
  { name: 'pattern of directories', dockerfile: scratch('COPY [de] /x/'), files: TREE },
  { name: 'pattern in a directory', dockerfile: scratch('COPY */a.txt /x/'), files: TREE },
  { name: 'pattern of one file to a name', dockerfile: scratch('COPY f* /x'), files: TREE },
  { name: 'pattern of two files to a name', dockerfile: scratch('COPY d/*.* /x'), files: TREE },
  { name: 'pattern of one directory to a name', dockerfile: scratch('COPY ?ub /x'), files: { 'sub/a': 'a' } },
  { name: 'pattern without a match', dockerfile: scratch('COPY f q* /x/'), files: TREE },
  { name: 'pattern alone without a match', dockerfile: scratch('COPY q* /x/'), files: TREE },
  {
    name: 'pattern of a range',
    dockerfile: scratch('COPY [a-c] [^a-c]1 /x/'),
    files: { a: 'a', c: 'c', e1: 'e', b1: 'n' },
  },
  {
    name: 'pattern with an escape',
    dockerfile: scratch('COPY \\*a [[]b /x/'),
    files: { '*a': '1', '[b': '2', xa: '3' },
  },
  { name: 'pattern of two stars', dockerfile: scratch('COPY **/c.txt /x/'), files: TREE },
  { name: 'pattern that is broken', dockerfile: scratch('COPY a[ /x/'), files: TREE, fails: true },
  {
    name: 'pattern of links',
    dockerfile: scratch('COPY l* /x/'),
    files: { ...TREE, l1: { link: 'f' }, l2: { link: 'd' } },
  },
  { name: 'pattern below a link', dockerfile: scratch('COPY l/*.txt /x/'), files: { ...TREE, l: { link: 'd' } } },
];

const LINKS: Files = {
  ...TREE,
  'to-file': { link: 'f' },
  'to-dir': { link: 'd' },
  absolute: { link: '/d/a.txt' },
  rising: { link: '../../../f' },
  dangling: { link: 'nowhere' },
  'in/soft': { link: 'other' },
  'in/dangling': { link: '/no/where' },
  'in/up': { link: '../f' },
};

/**
 * Files that are there before: a command that makes them would take a container. Links to other places have other names
 * in other cases, as dockerd's classic builder takes such files from its cache for equal ones.
 */
const REAL: Files = { 'there/real/': {}, 'there/l': { link: 'real' } };

const LINK_CASES: readonly TableCase[] = [
  { name: 'link to a file as source', dockerfile: scratch('COPY to-file /x'), files: LINKS },
  { name: 'link to a file into a directory', dockerfile: scratch('COPY to-file /x/'), files: LINKS },
  { name: 'link to a directory as source', dockerfile: scratch('COPY to-dir /x'), files: LINKS },
  { name: 'link to a directory with a slash', dockerfile: scratch('COPY to-dir/ /x/'), files: LINKS },
  { name: 'link in a source path', dockerfile: scratch('COPY to-dir/sub/c.txt /x'), files: LINKS },
  { name: 'absolute link as source', dockerfile: scratch('COPY absolute rising /x/'), files: LINKS },
  { name: 'dangling link as source', dockerfile: scratch('COPY dangling /x'), files: LINKS, fails: true },
  { name: 'links in a directory', dockerfile: scratch('COPY in /x'), files: LINKS },
  {
    name: 'link as destination directory',
    dockerfile: shell('COPY there /', 'COPY f /l/', 'COPY f /l/named', 'COPY d /l'),
    files: { ...TREE, ...REAL },
  },
  {
    name: 'link as destination file',
    dockerfile: shell('COPY there /', 'COPY f /l'),
    files: { ...TREE, 'there/real': '', 'there/l': { link: 'real' } },
  },
  {
    name: 'dangling link as destination',
    dockerfile: shell('COPY there /', 'COPY f /l'),
    files: { ...TREE, 'there/l': { link: 'nowhere' } },
  },
  {
    name: 'dangling link as directory',
    dockerfile: shell('COPY there /', 'COPY f /l/'),
    files: { ...TREE, 'there/l': { link: 'nowhere' } },
  },
  {
    name: 'below a dangling link',
    dockerfile: shell('COPY there /', 'COPY f /a/e/g', 'WORKDIR /a/h', 'COPY d .'),
    files: { ...TREE, 'there/a': { link: '/b' }, 'there/b': { link: 'c/d' } },
  },
  {
    name: 'a link to itself',
    dockerfile: shell('COPY there /', 'COPY f /self'),
    files: { ...TREE, 'there/self': { link: 'self' } },
    fails: true,
  },
  {
    name: 'link that rises as destination',
    dockerfile: shell('COPY there /', 'COPY f /rising/x'),
    files: { ...TREE, 'there/rising': { link: '../../../etc' } },
  },
  {
    name: 'directory over a link to a directory',
    dockerfile: shell('COPY there /', 'COPY over /x'),
    files: { 'there/real/': {}, 'there/x/d': { link: '../real' }, 'over/d/a': 'a' },
    fails: true,
  },
  {
    name: 'directory to a link to a directory',
    dockerfile: shell('COPY there /', 'COPY d /l/'),
    files: { ...TREE, ...REAL, 'there/real/': { mode: 0o700 } },
  },
  {
    name: 'link over a directory',
    dockerfile: shell('COPY there /', 'COPY over /x'),
    files: { 'there/x/l/': {}, 'over/l': { link: 'nowhere' } },
    fails: true,
  },
  {
    name: 'link over a file and a file over a link',
    dockerfile: shell('COPY there /', 'COPY over /x'),
    files: { 'there/x/a': '', 'there/x/b': { link: 'a' }, 'over/a': { link: 'b' }, 'over/b': 'b' },
  },
  {
    name: 'names of one inode in a context',
    dockerfile: scratch('COPY . /x'),
    files: { a: 'a', b: { hard: 'a' }, 'c/d': { hard: 'a' } },
  },
  {
    name: 'names of one inode in a stage',
    dockerfile: stages(
      shell('RUN mkdir /s && echo a > /s/a && ln /s/a /s/b && ln -s a /s/c'),
      'FROM scratch',
      'COPY --from=0 /s /x',
      'COPY --from=0 /s/a /s/b /y/',
    ),
  },
  {
    name: 'names of one inode in several directories',
    dockerfile: stages(
      shell('RUN mkdir -p /s/d/e && echo a > /s/a && ln /s/a /s/d/b && ln /s/a /s/d/e/c && ln /s/a /s/z'),
      'FROM scratch',
      'COPY --from=0 /s /',
      'COPY --from=0 /s /x',
    ),
  },
];

const CONFLICTS: readonly TableCase[] = [
  { name: 'file over a file', dockerfile: scratch('COPY f /x', 'COPY d/b.md /x'), files: TREE },
  { name: 'directory to a file', dockerfile: scratch('COPY f /x', 'COPY d /x'), files: TREE, fails: true },
  {
    name: 'directory to a file with a slash',
    dockerfile: scratch('COPY f /x', 'COPY d /x/'),
    files: TREE,
    fails: true,
  },
  { name: 'file below a file', dockerfile: scratch('COPY f /x', 'COPY f /x/y'), files: TREE, fails: true },
  {
    name: 'links to each other as source',
    dockerfile: scratch('COPY l /x'),
    files: { l: { link: 'm' }, m: { link: 'l' } },
    fails: true,
  },
  { name: 'owner by name in nothing', dockerfile: scratch('COPY --chown=x f /f'), files: { f: 'f' }, fails: true },
  {
    name: 'directory below a link to a file',
    dockerfile: scratch('COPY f /x', 'COPY d /', 'COPY d /l/y'),
    files: { f: 'f', 'd/l': { link: '/x' } },
    fails: true,
  },
  {
    name: 'file far below a link to a file',
    dockerfile: scratch('COPY f /x', 'COPY d /', 'COPY f /l/m/y'),
    files: { f: 'f', 'd/l': { link: '/x' } },
    fails: true,
  },
  { name: 'file into a file', dockerfile: scratch('COPY f /x', 'COPY f /x/'), files: TREE, fails: true },
  {
    name: 'file of a tree over a directory',
    dockerfile: scratch('COPY one /x', 'COPY two /x'),
    files: { 'one/n/a': 'a', 'two/n': 'n' },
    fails: true,
  },
  {
    name: 'directory of a tree over a file',
    dockerfile: scratch('COPY two /x', 'COPY one /x'),
    files: { 'one/n/a': 'a', 'two/n': 'n' },
    fails: true,
  },
  { name: 'directories are merged', dockerfile: scratch('COPY d /x', 'COPY e /x'), files: TREE },
  {
    name: 'directories that are there get new modes',
    dockerfile: shell('COPY . /'),
    files: { 'tmp/': { mode: 0o700 }, 'tmp/a': 'a', 'etc/': { mode: 0o711 }, 'etc/b': 'b' },
  },
  {
    name: 'directories named as destination keep their modes',
    dockerfile: shell('COPY tmp /tmp', 'COPY tmp /new'),
    files: { 'tmp/': { mode: 0o700 }, 'tmp/a': 'a' },
  },
  { name: 'the same file again', dockerfile: scratch('COPY f /x', 'COPY f /x'), files: TREE },
];

export const COPY_CASES = [...NAMES, ...PATTERNS, ...LINK_CASES, ...CONFLICTS];
