import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Instruction } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { parseDockerfile, parseTrigger, readDockerfile } from './parse.js';

function only(line: string): Instruction {
  const instruction = parseDockerfile(`FROM a\n${line}\n`).stages[0]?.instructions[0];
  assert.ok(instruction);
  return instruction;
}

function part(line: string, ...keys: string[]): Record<string, unknown> {
  const instruction = Object.entries(only(line));
  return Object.fromEntries(instruction.filter(([key]) => keys.includes(key)));
}

function problem(text: string): string {
  try {
    parseDockerfile(text);
  } catch (error) {
    assert.ok(error instanceof DockerfileError, String(error));
    return `${error.message} @${error.lines?.start}-${error.lines?.end}`;
  }
  return 'none';
}

describe('lines', () => {
  it('are joined at escape characters, without the comments between them', () => {
    const { stages, emptyContinuations } = parseDockerfile('FROM a\nRUN one \\  \n # no\n\n  two \\\\\nCMD x\n');
    assert.deepEqual(
      stages[0]?.instructions.map(({ original, lines }) => [original, lines.start, lines.end]),
      [
        ['RUN one   two \\\\', 2, 5],
        ['CMD x', 6, 6],
      ],
    );
    assert.deepEqual(emptyContinuations, [5]);
  });

  it('may end with CRLF and begin with a byte order mark', () => {
    const { stages, escape } = parseDockerfile(Buffer.from('\uFEFF# escape=`\r\nFROM a\r\nRUN b `\r\n c\r\n'));
    assert.equal(escape, '`');
    assert.equal(stages[0]?.instructions[0]?.original, 'RUN b  c');
  });

  it('of directives count at the top only', () => {
    const { directives } = parseDockerfile(
      '# syntax = docker/dockerfile:1 x\n#check=skip=all\n# z\n# escape=`\nFROM a',
    );
    assert.deepEqual(directives, {
      syntax: { value: 'docker/dockerfile:1 x', line: 1 },
      check: { value: 'skip=all', line: 2 },
      escape: undefined,
    });
  });

  it('of directives without a value are comments, unless a blank is there', () => {
    assert.equal(parseDockerfile('# syntax=\r\nFROM a').directives.syntax, undefined);
    assert.deepEqual(parseDockerfile('# syntax =\t \nFROM a').directives.syntax, { value: ' ', line: 1 });
    assert.equal(problem('# escape= \nFROM a').split(' @')[0], "invalid escape token ' ' does not match ` or \\");
  });

  it('of heredocs belong to their instruction', () => {
    const run = only('RUN <<-A cat <<"B"\n\tx\n\tA\n$y\nB');
    assert.deepEqual(run.kind === 'RUN' && run.command, {
      args: ['<<-A cat <<"B"'],
      isShellForm: true,
      heredocs: [
        { name: 'A', content: '\tx\n', chomp: true, expand: true, fd: 0 },
        { name: 'B', content: '$y\n', chomp: false, expand: false, fd: 0 },
      ],
    });
    assert.equal(run.lines.end, 6);
    assert.deepEqual(part('COPY <<-A x <<B /d/\n\t1\nA\n\t2\nB', 'sources', 'inlineFiles', 'destination'), {
      sources: ['x'],
      inlineFiles: [
        { name: 'A', content: '1\n', expand: true },
        { name: 'B', content: '\t2\n', expand: true },
      ],
      destination: '/d/',
    });
  });
});

describe('instructions', () => {
  it('are read in every form', () => {
    assert.deepEqual(part('ENV a=b "c d"=e f=\\ g', 'pairs')['pairs'], [
      { key: 'a', value: 'b', isLegacy: false },
      { key: '"c d"', value: 'e', isLegacy: false },
      { key: 'f', value: '\\ g', isLegacy: false },
    ]);
    assert.deepEqual(part('ENV a  b c', 'pairs')['pairs'], [{ key: 'a', value: 'b c', isLegacy: true }]);
    assert.deepEqual(part('expose 2 1/tcp', 'ports'), { ports: ['1/tcp', '2'] });
    assert.deepEqual(part('HEALTHCHECK --interval=1m1s --retries=2 CMD ["a"]', 'healthcheck')['healthcheck'], {
      test: ['CMD', 'a'],
      interval: 61e9,
      timeout: 0,
      startPeriod: 0,
      startInterval: 0,
      retries: 2,
    });
    assert.deepEqual(part('ADD --unpack=false --exclude=a --exclude=b ["x y", "/"]', 'sources', 'unpack', 'exclude'), {
      sources: ['x y'],
      unpack: false,
      exclude: ['a', 'b'],
    });
    assert.deepEqual(part('ONBUILD  RUN <<A\nb\nA', 'expression'), { expression: 'RUN <<A\nb\nA' });
    assert.equal(parseTrigger('COPY <<A /x\nb\nA').kind, 'COPY');
  });

  it('are grouped into stages', () => {
    const { globalArgs, stages } = parseDockerfile(
      'ARG v=1 w\n# Base the first\nFROM --platform=$P a:$v As Base\nFROM base\n',
    );
    assert.deepEqual(
      globalArgs[0]?.args.map(({ key, value }) => [key, value]),
      [
        ['v', '1'],
        ['w', undefined],
      ],
    );
    assert.deepEqual(
      stages.map(({ name, writtenName, base, platform, index }) => [name, writtenName, base, platform, index]),
      [
        ['base', 'Base', 'a:$v', '$P', 0],
        ['', '', 'base', '', 1],
      ],
    );
  });
});

describe('errors', () => {
  const cases: readonly (readonly [string, string])[] = [
    ['', 'the Dockerfile cannot be empty @undefined-undefined'],
    ['# x\n', 'file with no instructions @1-1'],
    ['FROM a\nRUNN x', 'dockerfile parse error on line 2: unknown instruction: RUNN (did you mean RUN?) @2-2'],
    [
      'FROM a\n\nCOPY --chow=1 a b',
      'dockerfile parse error on line 3: unknown flag: --chow (did you mean chown?) @3-3',
    ],
    ['FROM a\nRUN <<E\nx\n', 'unterminated heredoc @2-3'],
    ['RUN x\nFROM a', 'no build stage in current context @1-1'],
  ];
  for (const [text, expected] of cases) it(JSON.stringify(text), () => assert.equal(problem(text), expected));
});

describe('the bytes of a Dockerfile', () => {
  it('are read once, for each frontend that is to understand them', async () => {
    const text = Buffer.from('FROM a\nRUN true\n');
    const first = await readDockerfile({ text });
    assert.equal(await readDockerfile({ text }), first);
    assert.notEqual(await readDockerfile({ text, syntax: 'docker/dockerfile:1-labs' }), first);
    assert.notEqual(await readDockerfile({ text: Buffer.from(text) }), first);
  });
});
