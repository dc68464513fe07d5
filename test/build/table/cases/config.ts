/** Instructions that change the configuration of the image only, and WORKDIR. */
import { BASE, scratch, shell, stages, type TableCase } from '../case.js';

const commands = (name: string, ...lines: readonly string[]): TableCase => ({ name, dockerfile: shell(...lines) });
const empty = (name: string, ...lines: readonly string[]): TableCase => ({ name, dockerfile: scratch(...lines) });
const wrong = (name: string, ...lines: readonly string[]): TableCase => ({ ...empty(name, ...lines), fails: true });

const COMMANDS: readonly TableCase[] = [
  empty('cmd as words', 'CMD ["a", "b c", "\\"d\\""]'),
  empty('cmd as a line', 'CMD a  "b c" $d'),
  empty('cmd that looks like JSON', "CMD ['a', 'b']"),
  empty('cmd of nothing', 'CMD []'),
  empty('cmd twice', 'CMD a', 'CMD ["b"]'),
  commands('entrypoint takes the cmd of the base away', 'ENTRYPOINT ["e"]'),
  commands('entrypoint leaves the cmd of its stage', 'CMD ["c"]', 'ENTRYPOINT ["e"]'),
  commands('entrypoint before cmd', 'ENTRYPOINT e x', 'CMD ["c"]'),
  commands('entrypoint of nothing', 'ENTRYPOINT []'),
  {
    name: 'entrypoint in a stage of a stage',
    dockerfile: stages('FROM scratch AS a', 'CMD ["c"]', 'FROM a', 'ENTRYPOINT ["e"]'),
  },
  empty('shell', 'SHELL ["/bin/x", "-y"]', 'CMD a', 'ENTRYPOINT b', 'HEALTHCHECK CMD c'),
  {
    ...empty('shell and files', 'SHELL ["a", "b"]', 'COPY f /f', 'ADD f /g', 'WORKDIR /w'),
    files: { f: 'f' },
    labels: { a: 'b' },
  },
  commands('shell for commands', 'SHELL ["/bin/sh", "-e", "-c"]', 'RUN echo $- > /o'),
];

const FACTS: readonly TableCase[] = [
  empty('label forms', 'LABEL a=1 "b c"="d e" f.g=\'h\' i=j\\ k', 'LABEL old form', 'LABEL a=2'),
  empty('label of several lines', 'LABEL a="1 \\', '2" b=3'),
  { name: 'labels that are given', dockerfile: scratch('LABEL a=1 b=2'), labels: { b: 'given', c: 'x=y "z"', d: '' } },
  { name: 'labels of a base', dockerfile: shell('LABEL flavour=other more=yes') },
  empty('expose', 'EXPOSE 80 443/TCP 53/udp 8000-8002', 'EXPOSE 80/tcp 9/sctp'),
  empty('expose in the order of the words', 'ENV P=9 Q=80', 'EXPOSE 10 $Q 8-12/udp $P 8', 'EXPOSE 9-11 80 80/tcp'),
  wrong('expose of no port', 'EXPOSE http'),
  empty('expose with addresses', 'EXPOSE 127.0.0.1:8080:80'),
  empty('volume', 'VOLUME /a /b', 'VOLUME ["/c d", "/e"]', 'VOLUME rel'),
  { name: 'files in a volume', dockerfile: scratch('VOLUME /v', 'COPY f /v/f'), files: { f: 'f' } },
  commands('commands in a volume', 'VOLUME /v', 'RUN mkdir -p /v && echo x > /v/x'),
  empty('user', 'USER 5:6', 'USER name'),
  empty('stop signals', 'STOPSIGNAL SIGTERM', 'STOPSIGNAL 9'),
  empty('stop signal of a variable', 'ARG S=SIGINT', 'STOPSIGNAL $S'),
  empty('stop signal of another platform', 'STOPSIGNAL 99'),
  wrong('stop signal of no name', 'STOPSIGNAL SIGNOPE'),
  empty('maintainer', 'MAINTAINER Me <me@example.com>'),
  empty('health', 'HEALTHCHECK --interval=5s --timeout=1m --start-period=1h --start-interval=2s --retries=4 CMD a b'),
  empty('health as words', 'HEALTHCHECK CMD ["a", "b"]'),
  empty('health of none', 'HEALTHCHECK NONE'),
  empty('health twice', 'HEALTHCHECK --retries=3 CMD a', 'HEALTHCHECK CMD b'),
  empty('health of fractions', 'HEALTHCHECK --interval=1.5s --timeout=100ms CMD a'),
  wrong('health too often', 'HEALTHCHECK --interval=1us CMD a'),
];

const DIRECTORIES: readonly TableCase[] = [
  empty('workdir', 'WORKDIR /a/b'),
  empty('workdir step by step', 'WORKDIR /a', 'WORKDIR b', 'WORKDIR ../c/', 'WORKDIR ./d//e'),
  empty('workdir without a slash', 'WORKDIR a'),
  empty('workdir of the root', 'WORKDIR /', 'WORKDIR ..'),
  commands('workdir as it is written', 'ENV D=/d/', 'WORKDIR /a//./b/', 'RUN pwd > o', 'WORKDIR $D/e', 'WORKDIR /f/'),
  commands('workdir of the root in other forms', 'WORKDIR //', 'WORKDIR x', 'WORKDIR /.', 'RUN pwd > /o'),
  commands('workdir that is there', 'WORKDIR /etc', 'WORKDIR /tmp'),
  commands('workdir of a user', 'USER daemon', 'WORKDIR /home/a/b', 'WORKDIR /etc'),
  empty('workdir of a number', 'USER 7:8', 'WORKDIR /a/b'),
  commands('workdir of a user and a group', 'USER nobody:daemon', 'WORKDIR /q'),
  commands('workdir of a user who is unknown', 'USER who', 'WORKDIR /q'),
  empty('workdir in quotes', 'WORKDIR "/a b"', 'WORKDIR c d'),
  {
    ...commands('workdir by a link', 'COPY there /', 'WORKDIR /l/x', 'WORKDIR /l'),
    files: { 'there/real/': {}, 'there/l': { link: 'real' } },
  },
  {
    ...commands('workdir by a link that rises', 'COPY there /', 'WORKDIR /high/x'),
    files: { 'there/high': { link: '../../up' } },
  },
  { ...commands('workdir that is a file', 'WORKDIR /etc/passwd'), fails: true },
  { ...commands('workdir below a file', 'WORKDIR /etc/passwd/x'), fails: true },
  commands('workdir for commands', 'WORKDIR /a', 'WORKDIR b', 'RUN pwd > o'),
  {
    name: 'workdir and files',
    dockerfile: scratch('WORKDIR /a', 'COPY f .', 'WORKDIR /b', 'ADD f g'),
    files: { f: 'f' },
  },
];

const TRIGGERS: readonly TableCase[] = [
  empty('onbuild is kept', 'ONBUILD RUN a', 'ONBUILD COPY . /x', 'ONBUILD ENV A=$B'),
  {
    name: 'onbuild is done',
    dockerfile: stages(
      'FROM scratch AS a',
      'ONBUILD COPY f /x',
      'ONBUILD ENV A=b',
      'ONBUILD WORKDIR /$A',
      'FROM a',
      'COPY f $A',
    ),
    files: { f: 'f' },
  },
  {
    name: 'onbuild is done once',
    dockerfile: stages('FROM scratch AS a', 'ONBUILD ENV A=b', 'FROM a AS b', 'LABEL a=$A', 'FROM b', 'LABEL b=$A'),
  },
  {
    name: 'onbuild with a command',
    dockerfile: stages(`FROM ${BASE} AS a`, 'ONBUILD ARG W=here', 'ONBUILD RUN echo $W > /o', 'FROM a'),
    args: { W: 'given' },
  },
  {
    name: 'onbuild from a stage',
    dockerfile: stages(
      'FROM scratch AS src',
      'COPY f /f',
      'FROM scratch AS b',
      'ONBUILD COPY --from=src /f /g',
      'FROM b',
    ),
    files: { f: 'f' },
  },
  {
    name: 'onbuild of a document',
    dockerfile: stages('FROM scratch AS a', 'ONBUILD COPY <<E /x', 'text', 'E', 'FROM a'),
  },
  wrong('onbuild of onbuild', 'ONBUILD ONBUILD RUN a'),
];

export const CONFIG_CASES = [...COMMANDS, ...FACTS, ...DIRECTORIES, ...TRIGGERS];
