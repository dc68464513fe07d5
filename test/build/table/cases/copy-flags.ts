/** Flags of COPY: owners, modes, exclusions, other sources; and what files keep. */
import { BASE, type Files, scratch, shell, stages, type TableCase } from '../case.js';

const MODES: Files = {
  plain: 'p',
  secret: { text: 's', mode: 0o600 },
  program: { text: '#!/bin/sh\n', mode: 0o755 },
  setuid: { text: 'u', mode: 0o4755 },
  setgid: { text: 'g', mode: 0o2755 },
  'dir/': { mode: 0o2750 },
  'dir/file': { text: 'f', mode: 0o640 },
  'sticky/': { mode: 0o1777 },
  soft: { link: 'plain' },
};

const chmod = (mode: string): TableCase => ({
  name: `chmod ${mode}`,
  dockerfile: scratch(`COPY --chmod=${mode} . /x/`),
  files: MODES,
});

const badChmod = (mode: string): TableCase => ({ ...chmod(mode), fails: true });

const MODE_CASES: readonly TableCase[] = [
  { name: 'modes are kept', dockerfile: scratch('COPY . /x'), files: MODES },
  ...['644', '0755', '4755', '7777', '0', '00644'].map(chmod),
  ...['u=rwX,go=rX', '+x', 'a-w', 'g+s', 'u+s,g-s', 'o=', 'u=rw,g=u', '-x+X', '=r', 'ug+w,o-rwx', '+t'].map(chmod),
  ...['10000', 'u+q', '0x1ff'].map(badChmod),
  {
    name: 'chmod of a variable',
    dockerfile: scratch('ARG MODE=711', 'COPY --chmod=$MODE plain /x', 'COPY --chmod=${NONE} secret /y'),
    files: MODES,
  },
  { name: 'chmod of new directories', dockerfile: scratch('COPY --chmod=700 plain /a/b/c'), files: MODES },
  { name: 'chmod of a link', dockerfile: scratch('COPY --chmod=700 soft /x'), files: MODES },
  { name: 'chmod and chown', dockerfile: scratch('COPY --chmod=4711 --chown=7:8 . /x/'), files: MODES },
];

const OWNER_CASES: readonly TableCase[] = [
  { name: 'chown by numbers', dockerfile: scratch('COPY --chown=1000:2000 . /a/b/'), files: MODES },
  { name: 'chown by a number alone', dockerfile: scratch('COPY --chown=1000 plain /a/x'), files: MODES },
  { name: 'chown by names', dockerfile: shell('COPY --chown=daemon:nogroup . /x'), files: MODES },
  { name: 'chown by a name alone', dockerfile: shell('COPY --chown=nobody plain /x'), files: MODES },
  { name: 'chown by name and number', dockerfile: shell('COPY --chown=daemon:77 plain /x'), files: MODES },
  { name: 'chown by number and name', dockerfile: shell('COPY --chown=77:daemon plain /x'), files: MODES },
  { name: 'chown without a name of the group', dockerfile: shell('COPY --chown=daemon: plain /x'), files: MODES },
  { name: 'chown of a variable', dockerfile: shell('ENV O=1:daemon', 'COPY --chown=$O plain /x'), files: MODES },
  { name: 'chown to nobody known', dockerfile: shell('COPY --chown=who plain /x'), files: MODES },
  { name: 'chown to no known group', dockerfile: shell('COPY --chown=1:who plain /x'), files: MODES },
  { name: 'chown by name without users', dockerfile: scratch('COPY --chown=root plain /x'), files: MODES },
  {
    name: 'chown of a large number',
    dockerfile: scratch('COPY --chown=4294967294:2000000000 plain /x'),
    files: MODES,
    fails: true,
  },
  { name: 'chown into a present directory', dockerfile: shell('COPY --chown=5:6 dir /etc'), files: MODES },
  { name: 'chown ignores the user', dockerfile: shell('USER daemon', 'COPY plain /a/x'), files: MODES },
  {
    name: 'owners of a stage are kept',
    dockerfile: stages(
      shell('RUN mkdir /s && touch /s/a /s/b && chown -R 3:4 /s && chown 5 /s/b && chmod 2755 /s && chmod 4755 /s/b'),
      shell('COPY --from=0 /s /kept', 'COPY --from=0 /s/b /new/dir/', 'COPY --from=0 --chown=0:9 /s /given'),
    ),
  },
  {
    name: 'names of owners are those of the target',
    dockerfile: shell('COPY there /etc', 'COPY --chown=me:us plain /x'),
    files: { ...MODES, 'there/passwd': 'me:x:50:60::/:\n', 'there/group': 'us:x:70:\n' },
  },
];

const SPECIAL: Files = {
  a: { text: 'a', xattrs: { 'user.colour': 'green', 'user.shape': 'round' } },
  old: { text: 'o', mtime: 86_400 },
  'dir/': { mtime: 1_200_000_000, xattrs: { 'user.dir': 'yes' } },
  'dir/young': { text: 'y', mtime: 1_400_000_000 },
  link: { link: 'a', mtime: 1_300_000_000 },
};

const KEPT: readonly TableCase[] = [
  { name: 'attributes and times are kept', dockerfile: scratch('COPY . /x'), files: SPECIAL },
  { name: 'attributes of single files are kept', dockerfile: scratch('COPY a old /x/'), files: SPECIAL },
  { name: 'attributes survive chown', dockerfile: scratch('COPY --chown=1:2 . /x'), files: SPECIAL },
  {
    name: 'special files and times of a stage are kept',
    dockerfile: stages(
      shell(
        'RUN mkdir /s && mkfifo -m 620 /s/fifo && mknod /s/null c 1 3 && ln -s x /s/l && mkdir -m 1777 /s/t && ' +
          'mkdir /s/d && touch -t 200102030405 /s/f && touch -t 200202030405 /s/d',
      ),
      'FROM scratch',
      'COPY --from=0 /s /x',
    ),
  },
];

const TREE: Files = {
  'a.txt': 'a',
  'b.md': 'b',
  'd/c.txt': 'c',
  'd/e/f.md': 'f',
  'd/e/g.txt': 'g',
  h: 'h',
};

const EXCLUDES: readonly TableCase[] = [
  { name: 'exclude a pattern', dockerfile: scratch('COPY --exclude=*.txt . /x'), files: TREE },
  { name: 'exclude at any depth', dockerfile: scratch('COPY --exclude=**/*.txt . /x'), files: TREE },
  { name: 'exclude two patterns', dockerfile: scratch('COPY --exclude=d/e --exclude=*.md . /x'), files: TREE },
  { name: 'exclude a directory', dockerfile: scratch('COPY --exclude=d . /x'), files: TREE },
  { name: 'exclude in a directory', dockerfile: scratch('COPY --exclude=e d /x'), files: TREE },
  { name: 'exclude by the path in a directory', dockerfile: scratch('COPY --exclude=d/e d /x'), files: TREE },
  { name: 'exclude and take back', dockerfile: scratch('COPY --exclude=* --exclude=!h . /x'), files: TREE },
  {
    name: 'exclude and take back in a directory',
    dockerfile: scratch('COPY --exclude=d/** --exclude=!d/e/g.txt . /x', 'COPY --exclude=e --exclude=!e/g.txt d /y/'),
    files: { ...TREE, 'd/e/': { mode: 0o2750 } },
  },
  { name: 'exclude from a pattern', dockerfile: scratch('COPY --exclude=*.md * /x/'), files: TREE },
  { name: 'exclude the only file', dockerfile: scratch('COPY --exclude=h h /x/'), files: TREE },
  { name: 'exclude by a variable', dockerfile: scratch('ARG E=*.md', 'COPY --exclude=$E . /x'), files: TREE },
  {
    name: 'exclude from a stage',
    dockerfile: stages(scratch('COPY . /s'), 'FROM scratch', 'COPY --from=0 --exclude=**/*.md /s /x'),
    files: TREE,
  },
];

const LINKED: readonly TableCase[] = [
  { name: 'link a file', dockerfile: scratch('COPY --link a.txt /x/'), files: TREE },
  { name: 'link a directory', dockerfile: scratch('COPY --link d /x', 'COPY --link h /x/e/'), files: TREE },
  { name: 'link with an owner', dockerfile: shell('COPY --link --chown=3:4 --chmod=600 d /x/'), files: TREE },
  { name: 'link by names of owners', dockerfile: shell('COPY --link --chown=daemon h /x'), files: TREE },
  {
    name: 'link into a present directory',
    dockerfile: shell('COPY --link d /tmp', 'COPY --link h /etc/'),
    files: TREE,
  },
  {
    name: 'link over a link',
    dockerfile: shell('COPY there /', 'COPY --link h /l/'),
    files: { ...TREE, 'there/r/': {}, 'there/l': { link: 'r' } },
  },
  { name: 'link false', dockerfile: scratch('COPY --link=false a.txt /x/'), files: TREE },
  {
    name: 'link from a stage',
    dockerfile: stages(scratch('COPY d /s'), 'FROM scratch', 'COPY --link --from=0 /s /'),
    files: TREE,
  },
];

const SOURCES: readonly TableCase[] = [
  {
    name: 'from a stage by name',
    dockerfile: stages('FROM scratch AS Files', 'COPY d /s', 'FROM scratch', 'COPY --from=files /s/c.txt /x'),
    files: TREE,
  },
  {
    name: 'from a stage by index',
    dockerfile: stages(scratch('COPY a.txt /'), scratch('COPY b.md /'), 'FROM scratch', 'COPY --from=1 / /x/'),
    files: TREE,
  },
  { name: 'from an image', dockerfile: scratch(`COPY --from=${BASE} /etc/passwd /etc/group /x/`) },
  { name: 'from an image with a pattern', dockerfile: scratch(`COPY --from=${BASE} /etc/p* /x/`) },
  {
    name: 'from a context',
    dockerfile: scratch('COPY --from=more . /x', 'COPY --from=more n /y'),
    contexts: { more: { n: 'n', 'm/o': 'o' } },
  },
  {
    name: 'from a context with an ignore file',
    dockerfile: scratch('COPY --from=more . /x'),
    contexts: { more: { n: 'n', o: 'o', '.dockerignore': 'n' } },
    files: { '.dockerignore': 'o' },
  },
  {
    name: 'from a context that is an image',
    dockerfile: stages('FROM named', 'COPY --from=named /etc/motd /x'),
    references: { named: `docker-image://${BASE}` },
  },
  {
    name: 'a context in the place of a stage',
    dockerfile: stages('FROM scratch AS s', 'COPY a.txt /a', 'FROM scratch', 'COPY --from=s / /x'),
    files: TREE,
    contexts: { s: { instead: 'i' } },
  },
  {
    name: 'from nothing that is there',
    dockerfile: stages(scratch(), 'FROM scratch', 'COPY --from=0 /no /x'),
    fails: true,
  },
  { name: 'from a later stage', dockerfile: stages(scratch('COPY --from=1 / /'), 'FROM scratch') },
  { name: 'from its own stage', dockerfile: stages('FROM scratch AS a', 'COPY --from=a / /'), fails: true },
  {
    name: 'from a link in a stage',
    dockerfile: stages(shell('RUN ln -s /etc/motd /l'), 'FROM scratch', 'COPY --from=0 /l /x'),
  },
  { name: 'from a base above the root', dockerfile: scratch(`COPY --from=${BASE} ../../etc/motd /x`) },
  { name: 'parents is a flag of labs', dockerfile: scratch('COPY --parents d/e /x'), files: TREE, fails: true },
];

const DOCUMENTS: readonly TableCase[] = [
  { name: 'a document', dockerfile: scratch('COPY <<EOF /x', 'one', '  two', 'EOF') },
  { name: 'a document in a directory', dockerfile: scratch('COPY <<name.txt /x/', 'one', 'name.txt') },
  {
    name: 'a document with variables',
    dockerfile: scratch('ARG A=1', 'ENV B=2', 'COPY <<EOF /x', '$A ${B} \\$C "$D"', 'EOF'),
  },
  { name: 'a document as it is', dockerfile: scratch('ARG A=1', 'COPY <<"EOF" /x', '$A ${B} \\$C', 'EOF') },
  { name: 'a document without tabs', dockerfile: scratch('COPY <<-EOF /x', '\tone', '\t\ttwo', '\tEOF') },
  { name: 'two documents', dockerfile: scratch('COPY <<a <<b /x/', 'in a', 'a', 'in b', 'b') },
  { name: 'documents and files', dockerfile: scratch('COPY a.txt <<b /x/', 'in b', 'b'), files: TREE },
  {
    name: 'a document with owner and mode',
    dockerfile: scratch('COPY --chown=1:2 --chmod=755 <<E /a/x', '#!/bin/sh', 'E'),
  },
  { name: 'an empty document', dockerfile: scratch('COPY <<E /x', 'E') },
  { name: 'a document that does not end', dockerfile: scratch('COPY <<E /x', 'text'), fails: true },
  { name: 'a document that is linked', dockerfile: scratch('COPY --link <<E /x/y', 'text', 'E') },
  { name: 'a document for ADD', dockerfile: scratch('ADD <<E /x', 'text', 'E') },
];

export const COPY_FLAG_CASES = [
  ...MODE_CASES,
  ...OWNER_CASES,
  ...KEPT,
  ...EXCLUDES,
  ...LINKED,
  ...SOURCES,
  ...DOCUMENTS,
];
