/** Stages, the form of Dockerfiles, and ignore files. */
import { BASE, type Files, scratch, stages, type TableCase } from '../case.js';

const STAGES: readonly TableCase[] = [
  { name: 'nothing but a base', dockerfile: scratch() },
  { name: 'an image and nothing else', dockerfile: `FROM ${BASE}\n` },
  { name: 'the last stage', dockerfile: stages(scratch('LABEL a=1'), scratch('LABEL b=2')) },
  {
    name: 'a stage by name',
    dockerfile: stages('FROM scratch AS One', 'LABEL a=1', 'FROM scratch', 'LABEL b=2'),
    target: 'ONE',
  },
  {
    name: 'a stage by number',
    dockerfile: stages(scratch('LABEL a=1'), scratch('LABEL b=2')),
    target: '0',
    fails: true,
  },
  { name: 'a stage that is not there', dockerfile: scratch('LABEL a=1'), target: 'no', fails: true },
  {
    name: 'a stage of a stage',
    dockerfile: stages(
      'FROM scratch AS a',
      'LABEL a=1',
      'COPY f /a',
      'FROM a AS b',
      'COPY f /b',
      'FROM b',
      'LABEL c=3',
    ),
    files: { f: 'f' },
  },
  {
    name: 'stages that are not needed',
    dockerfile: stages('FROM no.example/none AS x', 'RUN false', 'FROM scratch', 'LABEL a=1'),
  },
  {
    name: 'stages of one name',
    dockerfile: stages('FROM scratch AS a', 'LABEL a=1', 'FROM scratch AS a', 'LABEL a=2', 'FROM a', 'LABEL b=3'),
  },
  {
    name: 'a stage with the name of an image',
    dockerfile: stages(`FROM ${BASE} AS busybox`, 'LABEL a=1', 'FROM busybox', 'LABEL b=1'),
  },
  {
    name: 'four stages side by side',
    dockerfile: stages(
      ...['a', 'b', 'c'].map((n) => `FROM ${BASE} AS ${n}\nRUN echo ${n} > /${n}`),
      'FROM scratch',
      ...['a', 'b', 'c'].map((n) => `COPY --from=${n} /${n} /`),
    ),
  },
  { name: 'a context as base', dockerfile: stages('FROM tree', 'LABEL a=1'), contexts: { tree: { 'in/f': 'f' } } },
];

const FORMS: readonly TableCase[] = [
  { name: 'words in lower case', dockerfile: 'from scratch as a\nlabel a=1\nfrom a\ncopy f /g\n', files: { f: 'f' } },
  {
    name: 'lines end with CRLF',
    dockerfile: 'FROM scratch\r\nENV A=1 \\\r\n  B=2\r\nCOPY f /g\r\nCMD a b\r\n',
    files: { f: 'f' },
  },
  { name: 'a byte order mark', dockerfile: '\ufeffFROM scratch\nLABEL a=1\n' },
  { name: 'another escape', dockerfile: '# escape=`\nFROM scratch\nENV A=1 `\n  B=c:\\d E=`$A\nLABEL a=$B\n' },
  { name: 'comments and empty lines', dockerfile: '# c\n\nFROM scratch\n  # c\nLABEL a=1 \\\n# c\n\n  # d\n b=2\n#\n' },
  { name: 'a comment at the end of a line is none', dockerfile: scratch('LABEL a=1 # b=2'), fails: true },
  { name: 'no newline at the end', dockerfile: 'FROM scratch\nLABEL a=1' },
  { name: 'tabs and blanks', dockerfile: ' FROM\tscratch\n\t LABEL \t a=1   b=2  \n' },
  { name: 'a line that goes on at the end', dockerfile: 'FROM scratch\nLABEL a=1 \\\n' },
  { name: 'an empty file', dockerfile: '', fails: true },
  {
    name: 'another name of the file',
    dockerfile: scratch('LABEL a=1'),
    files: { 'sub/other': scratch('LABEL b=2') },
    options: { dockerfile: 'sub/other' },
  },
  { name: 'a name of no file', dockerfile: scratch(), options: { dockerfile: 'none' }, fails: true },
];

const TREE: Files = {
  a: 'a',
  'b.md': 'b',
  'README.md': 'r',
  'd/e': 'e',
  'd/f.md': 'f',
  'd/g/h.md': 'h',
  'd/g/i': 'i',
  'ü x': 'u',
};

const ignore = (patterns: string, more: Partial<TableCase> = {}): TableCase => ({
  name: `ignore ${JSON.stringify(patterns)}`,
  dockerfile: scratch('COPY . /x'),
  files: { ...TREE, '.dockerignore': patterns },
  ...more,
});

const IGNORES: readonly TableCase[] = [
  ignore('a\n'),
  ignore('*.md\n'),
  ignore('**/*.md\n'),
  ignore('# a\n\n  b.md  \n/README.md\n./d/../a\n'),
  ignore('*\n!d\n'),
  ignore('*\n!d/g/*.md\n'),
  ignore('d\n!d/g\nd/g/i\n'),
  ignore('**\n!**/*.md\nd/g\n'),
  ignore('d/*\n!d/g\n'),
  ignore('*/*\n'),
  ignore('[a-b]*\n'),
  ignore('\u{feff}a\n'),
  ignore('ü x\n'),
  ignore('d/\n'),
  ignore('d/**\n'),
  ignore('.\n'),
  ignore('Dockerfile\n.dockerignore\n'),
  ignore('!a\n'),
  ignore('a[\n', { fails: true }),
  ignore('!\n', { fails: true }),
  ignore('a\n', { name: 'a file that is ignored', dockerfile: scratch('COPY a /x'), fails: true }),
  ignore('d\n', { name: 'a directory that is ignored', dockerfile: scratch('COPY d /x'), fails: true }),
  ignore('*.md\n', { name: 'a pattern over ignored files', dockerfile: scratch('COPY d/* *.md /x/') }),
  ignore('a\n', {
    name: 'ignore file of a Dockerfile',
    files: { ...TREE, '.dockerignore': 'a\n', 'Dockerfile.dockerignore': 'b.md\n' },
  }),
];

export const FILE_AND_STAGE_CASES = [...STAGES, ...FORMS, ...IGNORES];
