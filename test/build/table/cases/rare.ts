/** Combinations that are rarely typed: flags together, quotes in documents, arguments across stages, odd words. */
import { BASE, type Files, scratch, shell, stages, type TableCase } from '../case.js';
import { TAR_GZ } from '../archives.js';

const FILES: Files = {
  f: 'f',
  'd/a.txt': 'a',
  'd/b.md': { text: 'b', mode: 0o600 },
  'd/e/c.txt': 'c',
  'd/l': { link: 'a.txt' },
  'a.tgz': { base64: TAR_GZ },
  'there/r/own': 'o',
  'there/l': { link: 'r' },
  'there/far': { link: '/r/own' },
};

export const rare = (name: string, dockerfile: string, more: Partial<TableCase> = {}): TableCase => ({
  name: `rare: ${name}`,
  dockerfile,
  files: FILES,
  ...more,
});
export const wrong = (name: string, ...lines: readonly string[]): TableCase =>
  rare(name, shell(...lines), { fails: true });

const LINKED: readonly TableCase[] = [
  rare('link below a link with an owner', shell('COPY there /', 'COPY --link --chown=5:6 d /l/x/', 'COPY f /l/y')),
  rare('link over a link to a file', shell('COPY there /', 'COPY --link f /far')),
  rare('link below a working directory', scratch('WORKDIR /w', 'COPY --link f d ./', 'COPY --link f ../v/')),
  rare(
    'link with exclusions, mode and owner',
    shell('COPY --link --exclude=*.md --chown=daemon --chmod=u=rwX,go= d x/'),
  ),
  rare('link an archive with an owner', scratch('ADD --link --chown=7:8 a.tgz f /x/')),
  rare('link a directory over a file', shell('COPY f /x', 'COPY --link d /x/'), { fails: true }),
  rare('link an image to the root', shell(`COPY --link --from=${BASE} /etc /etc`, 'RUN ls /etc > /o')),
  rare(
    'link documents with variables',
    scratch('ENV N=n', 'COPY --link --chmod=640 <<$N <<"b" /x/', '$N', '$N', '$N', 'b'),
  ),
  rare('link and copy by turns', scratch('COPY --link f /x/1', 'COPY f /x/2', 'COPY --link d /x/', 'COPY d/e /x/')),
];

const NAMES_OF_ONE: readonly TableCase[] = [
  rare(
    'two names of one link',
    stages(
      shell('RUN mkdir /s && ln -s target /s/a && ln /s/a /s/b && ln -s /etc /s/c && mkdir /s/d && ln /s/c /s/d/e'),
      'FROM scratch',
      'COPY --from=0 /s /x',
    ),
  ),
  rare(
    'names of one file, one by one and together',
    stages(
      shell('RUN mkdir -p /s/d && echo x > /s/a && ln /s/a /s/b && ln /s/a /s/d/c'),
      'FROM scratch',
      'COPY --from=0 /s/a /s/b /x/',
      'COPY --from=0 /s/* /y/',
      'COPY --from=0 --chown=1:2 /s /z',
      'COPY --from=0 --link /s /l',
    ),
  ),
  rare('names of one file in a context', scratch('COPY . /x'), {
    files: { a: 'a', b: { hard: 'a' }, 'd/c': { hard: 'a' } },
  }),
];

const DOCUMENTS: readonly TableCase[] = [
  rare(
    'documents and their quotes',
    scratch(
      'ARG A=arg',
      'ENV B="b c"',
      'COPY <<one <<"two" <<\'three\' <<-four /x/',
      '$A ${B} "${A:-x}" \'$A\' \\$A \\\\ ${none:-no} ${A:+yes} $$ $1',
      'one',
      '$A \\$A \\\\',
      'two',
      '$A \\$A',
      'three',
      '\t$A\t${B%c}',
      '\t four',
      '\tfour',
    ),
  ),
  rare('a document with unknown variables', scratch('COPY <<E /x', 'a $none ${none} b', 'try $uri', 'E')),
  rare('a document with another escape', '# escape=`\nFROM scratch\nENV A=1\nCOPY <<E /x\n`$A $A \\$A `\n\\\nE\n'),
  rare('a document with CRLF', 'FROM scratch\r\nCOPY <<E /x\r\none\r\ntwo\r\nE\r\n'),
  rare('a document whose end is indented', scratch('COPY <<E /x', 'one', ' E', 'E ', 'E')),
  rare('a document that begins with comments', scratch('COPY <<E /x', '# one', '', '  # two \\', 'E')),
  rare('a document by the name of a path', scratch('COPY <<d/name /x/', 'one', 'd/name'), { fails: true }),
  rare('a document in words of JSON', scratch('COPY ["<<E", "/x"]', 'E'), { fails: true }),
  rare('shifts that are no documents', shell('RUN echo $((1<<2)) > /o', 'RUN echo "<<E" >> /o')),
  rare('a document for a program and a mount', shell('RUN --mount=target=/m <<E cat - /m/f > /o', '$HOME "x"', 'E')),
  rare('a document for words', shell('RUN <<E ["cat"]', 'x', 'E'), { fails: true }),
  rare(
    'documents in a command, one without tabs',
    shell('RUN cat <<-A <<B > /o; cat <<"C D" >> /o', '\ta', '\tA', 'b', 'B', 'c', 'C D'),
  ),
  rare(
    'a document with a program and arguments',
    shell('RUN <<E', '#!/bin/sh -e', 'echo $0 | sed "s/[0-9a-z]*$//" > /o', 'false || echo "$HOME" >> /o', 'E'),
  ),
  rare(
    'a document that is a trigger of commands',
    stages(shell('ONBUILD RUN <<E', 'echo 1 > /o', 'E'), 'FROM scratch'),
  ),
  rare('an empty document for a command', shell('RUN <<E', 'E')),
];

const ARGUMENTS: readonly TableCase[] = [
  rare(
    'arguments of all stages of the platform',
    stages(
      'ARG A=x-$TARGETARCH',
      'FROM scratch AS x-amd64',
      'ARG A',
      'LABEL a=$A',
      'FROM $A',
      'ARG A=own',
      'LABEL b=$A',
    ),
  ),
  rare(
    'arguments that hide each other across stages',
    stages(
      'ARG V=0',
      `FROM ${BASE} AS a`,
      'ARG V=1',
      'ENV V=$V-a',
      'FROM a AS b',
      'ARG V',
      'LABEL v="$V"',
      'FROM b',
      'ARG V=2',
      'RUN echo $V > /o',
    ),
    { args: { V: 'given' } },
  ),
  rare('an argument on its own line of itself', scratch('ARG A=1', 'ARG A=$A-2 B=$A', 'LABEL a=$A b=$B')),
  rare('an argument given as empty in FROM', stages('ARG S=x', 'FROM ${S:-scratch}'), { args: { S: '' } }),
  rare('an argument with a question in FROM', stages('ARG S', 'FROM ${S:?is needed}'), { fails: true }),
  rare(
    'a variable for a stage',
    stages('FROM scratch AS s', 'COPY f /', 'FROM scratch', 'ARG S=s', 'COPY --from=$S /f /'),
    { fails: true },
  ),
  rare(
    'a variable for a stage that is mounted',
    stages('FROM scratch AS s', 'COPY f /', shell('ARG S=s', 'RUN --mount=from=$S,target=/m true')),
    { fails: true },
  ),
  rare('an argument that is PATH', shell('ARG PATH=/none:/bin', 'RUN echo $PATH > /o')),
  rare('arguments with signs', shell('ARG A="a\\"b" B=\'$x\'', 'RUN echo "$A|$B" > /o', 'ENV C="$A" D=${B}'), {
    args: { B: 'c\'d "e" $f' },
  }),
  rare('env of odd forms', scratch('ENV A=a=b B="c"d\'e\'f C=', 'ENV D  a=b', 'LABEL "x y"="z" e=$A f=${B}$C')),
  rare('env without a name', scratch('ENV =x'), { fails: true }),
  rare('env in the name', scratch('ENV A=B', 'ENV $A=c', 'LABEL $A=d ${A}x=e')),
];

const TRIGGERS: readonly TableCase[] = [
  rare(
    'triggers of each kind',
    stages(
      `FROM ${BASE} AS base`,
      ...[
        'ARG A=1',
        'ENV B=$A',
        'USER 5:6',
        'WORKDIR /w/$B',
        'SHELL ["/bin/sh", "-ec"]',
        'RUN id -u > /tmp/o && pwd >> /tmp/o',
      ].map((one) => `ONBUILD ${one}`),
      ...[
        'LABEL l="$A $B"',
        'EXPOSE 8$A',
        'VOLUME /v$B',
        'STOPSIGNAL 9',
        'CMD a $B',
        'ENTRYPOINT ["e"]',
        'HEALTHCHECK --retries=2 CMD x',
      ].map((one) => `onbuild ${one}`),
      'FROM base',
      'COPY f .',
    ),
    { args: { A: '7' } },
  ),
  rare(
    'triggers that a trigger leaves to the next stage',
    stages(
      'FROM scratch AS a',
      'ONBUILD LABEL a=1',
      'FROM a AS b',
      'ONBUILD LABEL b=2',
      'FROM b AS c',
      'FROM c',
      'LABEL d=3',
    ),
  ),
  rare(
    'triggers that mount and copy from stages and images',
    stages(
      'FROM scratch AS s',
      'COPY d /s',
      `FROM ${BASE} AS a`,
      `ONBUILD COPY --from=${BASE} --chown=3:4 /etc/motd /m`,
      'ONBUILD RUN --mount=from=s,source=s,target=/m2 cat /m2/a.txt > /o',
      'FROM a',
    ),
  ),
  wrong('a trigger of FROM', 'ONBUILD FROM scratch'),
  wrong('a trigger of MAINTAINER', 'ONBUILD MAINTAINER me'),
  wrong('a trigger of nothing', 'ONBUILD'),
  rare('a trigger that is unknown', shell('ONBUILD NOPE x')),
];

const CHECKS = [
  ['a check that is skipped', '# check=skip=MaintainerDeprecated,JSONArgsRecommended;error=true'],
  ['all checks that are skipped', '# check=skip=all;error=true'],
  ['checks that are tried out', '# check=experimental=all'],
].map(([name = '', line]) => rare(name, `${line}\nFROM scratch\nMAINTAINER me\nCMD a\n`));

const DIRECTIVES: readonly TableCase[] = [
  ...CHECKS,
  ...[
    ['a check of no kind', '# check=some=1\nFROM scratch\n'],
    ['an escape of no kind', '# escape=x\nFROM scratch\n'],
    ['an escape twice', '# escape=`\n# escape=\\\nFROM scratch\n'],
  ].map(([name = '', dockerfile = '']) => rare(name, dockerfile, { fails: true })),
  rare('a directive after a comment', '# a\n# escape=`\nFROM scratch\nENV A=\\$x\n'),
];

const WORDS: readonly TableCase[] = [
  wrong('a user of nothing', 'USER'),
  rare(
    'a user and a group by turns',
    shell('USER daemon:5', 'RUN id > /tmp/o', 'USER 5:daemon', 'RUN id > /tmp/p', 'USER :7'),
  ),
  rare(
    'lists that are none',
    shell('CMD [ "a", ]', 'ENTRYPOINT [ "a" "b" ]', "RUN echo ['a'] > /o", 'VOLUME ["/a" "/b"]'),
  ),
  rare(
    'lists over several lines',
    shell('RUN [ "sh", \\', '  # c', '  "-c", \\', '  "echo x > /o" ]', 'CMD [ \\', '"a" ]'),
  ),
  rare('copies in lists', scratch('COPY [ "f", "d", "/x y/" ]', 'COPY ["there/r*", "./z/"]', 'ADD ["a.tgz", "/q"]')),
  rare('a list that ends in a comma', scratch('COPY ["f", "/x",]'), { fails: true }),
  rare('a list of one', scratch('COPY ["f"]'), { fails: true }),
  wrong('a health check of no kind', 'HEALTHCHECK NOPE x'),
  wrong('a health check of nothing', 'HEALTHCHECK CMD'),
  wrong('a shell that is no list', 'SHELL /bin/sh'),
  wrong('two stop signals', 'STOPSIGNAL 1 2'),
  wrong('a flag of another instruction', 'WORKDIR --link /w'),
  wrong('a flag twice', 'COPY --chown=1 --chown=2 f /x'),
  wrong('a flag that is no truth', 'COPY --link=perhaps f /x'),
  wrong('a checksum of a copy', 'ADD --checksum=sha256:00 f /x'),
  wrong('an instruction that is misspelt', 'RUM true'),
  rare('FROM with too many words', 'FROM scratch a b\n', { fails: true }),
  rare('a stage with a bad name', 'FROM scratch AS 1a\n', { fails: true }),
  rare('a copy before FROM', 'COPY f /\nFROM scratch\n', { fails: true }),
];

const CONTEXTS: readonly TableCase[] = [
  rare(
    'an image in the place of another',
    stages('FROM alpine:3 AS a', 'FROM a', 'COPY --from=alpine:3 /etc/motd /x'),
    {
      references: { 'alpine:3': `docker-image://${BASE}` },
    },
  ),
  rare(
    'a context in the place of an image',
    stages('FROM scratch', 'COPY --from=some/image:1 --exclude=o --chown=1:2 / /x/'),
    {
      contexts: { 'some/image:1': { n: 'n', o: 'o', 'd/p': 'p' } },
    },
  ),
  rare(
    'a context that is mounted and written',
    shell('RUN --mount=from=more,target=/m,rw --mount=from=more,source=d,target=/n rm /m/n && ls /m /n > /o'),
    {
      contexts: { more: { n: 'n', 'd/p': 'p' } },
    },
  ),
  rare(
    'a stage that hides a context of another name',
    stages('FROM scratch AS x', 'COPY f /', 'FROM scratch', 'COPY --from=X / /y/'),
    {
      contexts: { y: { n: 'n' } },
    },
  ),
];

export const RARE_CASES = [
  ...LINKED,
  ...NAMES_OF_ONE,
  ...DOCUMENTS,
  ...ARGUMENTS,
  ...TRIGGERS,
  ...DIRECTIVES,
  ...WORDS,
  ...CONTEXTS,
];
