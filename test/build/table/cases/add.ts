/** ADD: archives are unpacked, other files copied. */
import * as archives from '../archives.js';
import { type Files, scratch, shell, type TableCase } from '../case.js';

const { TAR_BZ2, TAR_GZ, TAR_XZ, TAR_ZST } = archives;

const FILES: Files = {
  'a.gz': { base64: TAR_GZ },
  'a.bz2': { base64: TAR_BZ2 },
  'a.xz': { base64: TAR_XZ },
  'a.zst': { base64: TAR_ZST },
  'escaping.tgz': { base64: archives.ESCAPING_TAR_GZ },
  'whiteout.tgz': { base64: archives.WHITEOUT_TAR_GZ },
  'link-out.tgz': { base64: archives.LINK_OUT_TAR_GZ },
  'dir-file.tgz': { base64: archives.DIR_FILE_TAR_GZ },
  'xattr.tgz': { base64: archives.XATTR_TAR_GZ },
  'empty.tgz': { base64: archives.EMPTY_TAR_GZ },
  'text.gz': { base64: archives.TEXT_GZ },
  'cut.tgz': { base64: archives.CUT_TAR_GZ },
  'no-archive.tar': 'only the name',
  'dir/in.txt': { base64: TAR_GZ },
  plain: { text: 'plain', mode: 0o640 },
};

const add = (name: string, ...lines: readonly string[]): TableCase => ({
  name: `add ${name}`,
  dockerfile: scratch(...lines),
  files: FILES,
});

export const ADD_CASES: readonly TableCase[] = [
  add('gzip', 'ADD a.gz /x'),
  add('bzip2', 'ADD a.bz2 /x/'),
  add('xz', 'ADD a.xz /x'),
  add('zstd', 'ADD a.zst /x'),
  add('several archives', 'ADD a.gz xattr.tgz plain /x/'),
  add('archives by a pattern', 'ADD *.bz2 p* /x/'),
  add('an archive over another', 'ADD dir-file.tgz /x', 'ADD a.gz /x', 'ADD dir-file.tgz /x'),
  add('an archive to the root', 'ADD a.gz /'),
  add('an archive with another owner', 'ADD --chown=9:10 a.gz /x'),
  add('an archive with another mode', 'ADD --chmod=600 a.gz /x'),
  add('an archive as it is', 'ADD --unpack=false a.gz /x/'),
  add('an archive that is to be unpacked', 'ADD --unpack=true a.gz /x/'),
  add('an archive in a directory', 'ADD dir /x'),
  add('an archive of nothing', 'ADD empty.tgz /x/'),
  add('a compressed text', 'ADD text.gz /x/'),
  add('a file with the name of an archive', 'ADD no-archive.tar /x/'),
  add('a file', 'ADD plain /x'),
  add('a file with owner and mode', 'ADD --chown=1:2 --chmod=400 plain /x'),
  add('with exclusions', 'ADD --exclude=*.gz --exclude=*.tgz . /x/'),
  add('an archive with attributes', 'ADD xattr.tgz /x'),
  add('an archive of whiteouts', 'ADD plain /x/old', 'ADD whiteout.tgz /x/'),
  add('an archive that is linked', 'ADD --link a.gz /x'),
  { ...add('an archive that is cut', 'ADD cut.tgz /x'), fails: true },
  { ...add('an archive that leads out', 'ADD escaping.tgz /x/y'), fails: true },
  { ...add('an archive over a file', 'ADD plain /x', 'ADD a.gz /x'), fails: true },
  add('an archive with a link that leads out', 'ADD link-out.tgz /x'),
  { ...add('nothing that is there', 'ADD missing.tgz /x'), fails: true },
  {
    name: 'add an archive to a link',
    dockerfile: shell('COPY there /', 'ADD a.gz /l'),
    files: { ...FILES, 'there/real/': {}, 'there/l': { link: 'real' } },
  },
  {
    name: 'add an archive over links',
    dockerfile: shell('COPY there /', 'ADD a.gz /x'),
    files: { ...FILES, 'there/real/': {}, 'there/x/dir': { link: '../real' }, 'there/x/one': { link: '/etc/motd' } },
  },
  {
    name: 'add an archive from a variable',
    dockerfile: shell('ARG N=a TO=/x', 'WORKDIR /w', 'ADD $N.gz .$TO'),
    files: FILES,
  },
];
