/** ARG, ENV and the forms of their expansion. */
import { BASE, scratch, shell, stages, type TableCase } from '../case.js';

const VALUES = ['ARG set=value.tar.gz', 'ARG empty=', 'ARG n=a/b/a'];

const FORMS: readonly string[] = [
  '$set',
  '${set}',
  '$none',
  '${none}',
  '$empty',
  '\\$set',
  '"$set"',
  "'$set'",
  '$set$n',
  '${set}_$n',
  '"a b $set"',
  '${none:-word}',
  '${empty:-word}',
  '${empty-word}',
  '${none-word}',
  '${set:-word}',
  '${none:-$set}',
  '${none:-"a b"}',
  '${set:+word}',
  '${empty:+word}',
  '${empty+word}',
  '${none+word}',
  '${none:-${set:+$n}}',

  '${set#*.}',
  '${set##*.}',
  '${set%.*}',
  '${set%%.*}',
  '${n/a/x}',
  '${n//a/x}',
  '${n/#a/x}',
  '${n/b*/x}',
  '${set#q}',
  '${set:?gone}',
  '${none:-}',
  'a$',
  '$',
  '"$"',
  '$9x',
  '${set//./}',
  '${n//\\//-}',
  '$set.x',
];

const ALL_FORMS: TableCase = {
  name: 'expansions',
  dockerfile: scratch(...VALUES, ...FORMS.map((form, i) => `LABEL l${i}=${form}`)),
};

const BAD_FORMS: readonly TableCase[] = ['${none:?is needed}', '${none?}', '${set', '${set:!x}'].map((form) => ({
  name: `expansion ${form}`,
  dockerfile: scratch(...VALUES, `LABEL x=${form}`),
  fails: true,
}));

const ENVS: readonly TableCase[] = [
  { name: 'env of the old form', dockerfile: scratch('ENV A b  c "d" \'e\'', 'ENV B   $A ') },
  { name: 'env of several', dockerfile: scratch('ENV A=1 B="2 3" C=4\\ 5 D=\'$A\' E="$A" F=""') },
  { name: 'env sees the line before', dockerfile: scratch('ENV A=1', 'ENV A=2 B=$A', 'ENV C=$A') },
  { name: 'env over several lines', dockerfile: scratch('ENV A=1 \\', '  # a comment', '', '  B=2 \\', '  C=3') },
  { name: 'env replaces and appends', dockerfile: shell('ENV PATH=$PATH:/more X=1', 'ENV X=2 Y=3') },
  { name: 'env with escapes', dockerfile: scratch('ENV A="a\\"b" B=a\\"b C="\\\\n" D=\\n E="\\$x" F=\'\\$x\'') },
  {
    name: 'env in other instructions',
    dockerfile: scratch(
      'ENV D=/w U=5 P=80 S=9',
      'WORKDIR $D/x',
      'USER $U:$U',
      'EXPOSE $P/udp',
      'STOPSIGNAL $S',
      'VOLUME $D/v',
      'LABEL l=$D',
    ),
  },
  {
    name: 'env is not for commands',
    dockerfile: scratch('ENV A=1', 'CMD echo $A', 'ENTRYPOINT ["echo", "$A"]', 'HEALTHCHECK CMD echo $A'),
  },
  { name: 'env without a value', dockerfile: scratch('ENV A'), fails: true },
  { name: 'env with an empty value', dockerfile: scratch('ENV A= B=x', 'LABEL a="<$A>"') },
];

const ARGS: readonly TableCase[] = [
  { name: 'arg with a default', dockerfile: scratch('ARG A=1', 'LABEL a=$A') },
  { name: 'arg that is given', dockerfile: scratch('ARG A=1', 'LABEL a=$A'), args: { A: '2' } },
  { name: 'arg that is given as empty', dockerfile: scratch('ARG A=1', 'LABEL a="<$A>"'), args: { A: '' } },
  { name: 'arg without a value', dockerfile: scratch('ARG A', 'LABEL a="<$A>" b=${A-unset}') },
  { name: 'arg that is not declared', dockerfile: scratch('LABEL a="<$A>"'), args: { A: '2' } },
  {
    name: 'arg before it is declared',
    dockerfile: scratch('LABEL a="<$A>"', 'ARG A=1', 'LABEL b=$A'),
    args: { A: '2' },
  },
  { name: 'args on one line', dockerfile: scratch('ARG A=1 B=$A C', 'LABEL a=$A b="<$B>" c="<$C>"'), args: { C: 'c' } },
  { name: 'arg of all stages', dockerfile: stages('ARG A=1', 'FROM scratch', 'LABEL a="<$A>"', 'ARG A', 'LABEL b=$A') },
  {
    name: 'arg of all stages with a default of the stage',
    dockerfile: stages('ARG A=1', 'FROM scratch', 'ARG A=2', 'LABEL a=$A'),
  },
  {
    name: 'arg of all stages that is given',
    dockerfile: stages('ARG A=1', 'FROM scratch', 'ARG A', 'LABEL a=$A'),
    args: { A: '3' },
  },
  { name: 'arg of another arg', dockerfile: stages('ARG A=1', 'ARG B=${A}2', 'FROM scratch', 'ARG B', 'LABEL b=$B') },
  { name: 'arg of a base', dockerfile: stages('ARG TAG=1.0', 'FROM test/busybox:${TAG} AS x', 'FROM ${NOTHING:-x}') },
  {
    name: 'arg of a stage is for those that are based on it',
    dockerfile: stages(
      'FROM scratch AS a',
      'ARG A=1',
      'FROM a AS b',
      'LABEL a="<$A>"',
      'FROM scratch',
      'LABEL a="<$A>"',
    ),
    target: 'b',
  },
  { name: 'arg after env', dockerfile: scratch('ENV A=env', 'ARG A=arg', 'LABEL a=$A') },
  { name: 'env after arg', dockerfile: scratch('ARG A=arg', 'ENV A=env', 'LABEL a=$A'), args: { A: 'given' } },
  {
    name: 'env takes an arg',
    dockerfile: scratch('ARG A=arg', 'ENV A=${A:-none}', 'LABEL a=$A'),
    args: { A: 'given' },
  },
  { name: 'arg twice', dockerfile: scratch('ARG A=1', 'ARG A=2', 'LABEL a=$A', 'ARG A', 'LABEL b="<$A>"') },
  { name: 'arg in quotes', dockerfile: scratch('ARG A="a b" B=\'c d\' C=e\\ f', 'LABEL a=$A b=$B c="$C"') },
  {
    name: 'arg in a command',
    dockerfile: shell('ARG A=1', 'ARG B', 'ARG C="x y"', 'RUN echo "$A $B $C" > /o'),
    args: { B: 'b c' },
  },
  {
    name: 'arg and env in a command',
    dockerfile: shell('ARG A=arg', 'ENV A=env B=$A', 'ARG B=arg', 'RUN echo $A $B > /o'),
  },
  {
    name: 'args of proxies',
    dockerfile: shell('RUN echo $HTTP_PROXY $no_proxy > /o'),
    args: { HTTP_PROXY: 'http://p:1', no_proxy: 'n' },
  },
  {
    name: 'arg of a proxy that is declared',
    dockerfile: shell('ARG HTTP_PROXY', 'RUN echo $HTTP_PROXY > /o'),
    args: { HTTP_PROXY: 'http://p:1' },
  },
];

const PLATFORM_NAMES = ['PLATFORM', 'OS', 'ARCH', 'VARIANT', 'OSVERSION'];
const AUTOMATIC = ['TARGET', 'BUILD'].flatMap((side) => PLATFORM_NAMES.map((name) => side + name));

const AUTOMATIC_ARGS: readonly TableCase[] = [
  {
    name: 'automatic args',
    dockerfile: scratch(
      ...AUTOMATIC.map((name) => `ARG ${name}`),
      ...AUTOMATIC.map((name) => `LABEL ${name}="<$${name}>"`),
    ),
  },
  { name: 'automatic args are not there by themselves', dockerfile: scratch('LABEL a="<$TARGETARCH>"') },
  {
    name: 'automatic args in FROM',
    dockerfile: stages('FROM scratch AS base-amd64', 'LABEL a=yes', 'FROM base-$TARGETARCH'),
  },
  {
    name: 'automatic args that are given',
    dockerfile: scratch('ARG TARGETARCH', 'LABEL a=$TARGETARCH'),
    args: { TARGETARCH: 'mine' },
  },
  { name: 'automatic args with a default', dockerfile: scratch('ARG TARGETOS=mine', 'LABEL a=$TARGETOS') },
  {
    name: 'name of the stage',
    dockerfile: stages('FROM scratch AS it', 'ARG TARGETSTAGE', 'LABEL a=$TARGETSTAGE'),
    target: 'it',
  },
  { name: 'name of no stage', dockerfile: scratch('ARG TARGETSTAGE', 'LABEL a=$TARGETSTAGE') },
  {
    name: 'another platform',
    dockerfile: scratch('ARG TARGETPLATFORM', 'COPY f /f', 'LABEL a=$TARGETPLATFORM'),
    files: { f: 'f' },
    platform: 'linux/arm64',
  },
  {
    name: 'another platform with a variant',
    dockerfile: scratch('ARG TARGETVARIANT TARGETARCH', 'LABEL a=$TARGETARCH$TARGETVARIANT'),
    platform: 'linux/arm/v7',
  },
  {
    name: 'the platform of the build',
    dockerfile: stages(
      `FROM --platform=$BUILDPLATFORM ${BASE} AS b`,
      'ARG BUILDARCH TARGETARCH',
      'RUN echo $BUILDARCH $TARGETARCH > /o',
      'FROM scratch',
      'COPY --from=b /o /',
    ),
    platform: 'linux/arm64',
  },
  { name: 'a platform in FROM', dockerfile: stages('FROM --platform=linux/s390x scratch', 'LABEL a=b') },
  { name: 'a platform that is none', dockerfile: scratch(), platform: 'linux/x/y/z', fails: true },
];

const SPECIAL_ARGS: readonly TableCase[] = [
  {
    name: 'source date epoch',
    dockerfile: scratch('COPY f /f', 'LABEL a=b'),
    files: { f: 'f' },
    args: { SOURCE_DATE_EPOCH: '1000000001' },
  },
  {
    name: 'source date epoch in a command',
    dockerfile: shell('ARG SOURCE_DATE_EPOCH', 'RUN echo $SOURCE_DATE_EPOCH > /o'),
    args: { SOURCE_DATE_EPOCH: '1000000001' },
  },
  { name: 'source date epoch that is none', dockerfile: scratch(), args: { SOURCE_DATE_EPOCH: 'x' }, fails: true },
  {
    name: 'name of the sandbox',
    dockerfile: shell('RUN hostname > /o && cat /etc/hosts > /h'),
    args: { BUILDKIT_SANDBOX_HOSTNAME: 'box' },
  },
  {
    name: 'special args as they are',
    dockerfile: scratch('ARG BUILDKIT_INLINE_CACHE', 'LABEL a="<$BUILDKIT_INLINE_CACHE>"'),
    args: { BUILDKIT_MULTI_PLATFORM: '0' },
  },
  { name: 'checks that fail a build', dockerfile: '# check=error=true\nFROM scratch\nMAINTAINER me\n', fails: true },
  {
    name: 'checks that a build arg asks for',
    dockerfile: scratch('MAINTAINER me'),
    args: { BUILDKIT_DOCKERFILE_CHECK: 'error=true' },
    fails: true,
  },
];

export const VARIABLE_CASES = [ALL_FORMS, ...BAD_FORMS, ...ENVS, ...ARGS, ...AUTOMATIC_ARGS, ...SPECIAL_ARGS];
