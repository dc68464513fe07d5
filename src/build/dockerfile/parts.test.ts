/** Reading, checking and expanding a long Dockerfile are done in parts, so that none of them holds up the thread. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Parts, whole } from '../../text/turns.js';
import { checkParts } from './check.js';
import { nodeParts } from './nodes.js';
import { singleLines } from './outline.js';
import { parseDockerfile } from './parse.js';
import { exposedPorts, PortBudget } from './ports.js';
import { StageScope } from './scope.js';
import { StageGraph } from './stage-graph.js';

const AMD64 = { os: 'linux', architecture: 'amd64', variant: '', osVersion: '' };
const OPTIONS = {
  target: '',
  buildArgs: new Map<string, string>(),
  host: AMD64,
  buildPlatform: AMD64,
  targetPlatform: AMD64,
  hasContext: () => false,
};

const ALL = { ...OPTIONS, allStages: true, image: () => undefined };

function countParts(parts: Parts<unknown>): number {
  let count = 0;
  while (parts.next().done !== true) count++;
  return count;
}

const lines = (count: number, line: (at: number) => string): string =>
  Array.from({ length: count }, (_, at) => line(at)).join('');

describe('a long Dockerfile', () => {
  const MANY = 500;
  const texts: readonly (readonly [string, string])[] = [
    ['instructions', `FROM scratch\n${lines(MANY, (at) => `COPY --from=x${at} a b\n`)}`],
    ['words of one instruction', `FROM scratch\nENV ${lines(MANY, (at) => `a${at}=$b${at} \\\n`)}\n`],
    ['sources of one instruction', `FROM scratch\nCOPY ${lines(MANY, (at) => `a${at} \\\n`)} /\n`],
    ['stages', lines(MANY, (at) => `FROM scratch AS s${at}\n`)],
    ['global arguments', `${lines(MANY, (at) => `ARG a${at}=$b\n`)}FROM scratch\n`],
  ];
  for (const [name, text] of texts) {
    it(`has at least one part for each of its ${name}`, () => {
      assert.ok(countParts(nodeParts(text)) >= MANY);
      const dockerfile = parseDockerfile(text);
      const graphParts = countParts(StageGraph.parts(dockerfile, OPTIONS));
      const graph = StageGraph.of(dockerfile, OPTIONS);
      const scopeParts = graph.stages.map(({ instructions }) => {
        const scope = StageScope.of({ imageEnv: [] }, graph.globals, OPTIONS.buildArgs, graph.expander);
        return instructions.reduce((sum, one) => sum + countParts(scope.next(one)), 0);
      });
      assert.ok(graphParts + scopeParts.reduce((sum, count) => sum + count, 0) >= MANY);
      assert.ok(countParts(checkParts(dockerfile, { ...OPTIONS, allStages: true, image: () => undefined })) >= MANY);
    });
  }

  it('has a part for each line of a heredoc', () => {
    assert.ok(countParts(nodeParts(`FROM scratch\nCOPY <<E /a\n${'\n'.repeat(MANY)}E\n`)) >= MANY);
  });
});

describe('ranges', () => {
  it('of ports are in the order in which they are written, and limited in all of a build', () => {
    const ports = exposedPorts(['8-2000', '80/UDP', '9-11/sctp', '8']);
    assert.equal(ports.length, 1993 + 1 + 3 + 1);
    assert.deepEqual(ports.slice(0, 3), ['8/tcp', '9/tcp', '10/tcp']);
    assert.deepEqual(ports.slice(-5), ['80/udp', '9/sctp', '10/sctp', '11/sctp', '8/tcp']);
    const budget = new PortBudget();
    for (let times = 0; times < 3; times++) budget.spend(['0-65535']);
    assert.throws(() => budget.spend(['1']), { message: 'EXPOSE has too many ports' });
  });

  it('of very many lines are one', () => {
    assert.equal(singleLines({ start: 3, end: 5 }).length, 3);
    assert.deepEqual(singleLines({ start: 1, end: 500_000 }), [{ start: 1, end: 500_000 }]);
  });
});

it('a check says what is meant by a word before its own instruction has changed the variables', () => {
  const dockerfile = parseDockerfile('FROM scratch\nENV FOOO=$FOO\n');
  const { warnings } = whole(checkParts(dockerfile, { ...OPTIONS, allStages: true, image: () => undefined }));
  assert.deepEqual(
    warnings.map(({ detail }) => detail),
    ["Usage of undefined variable '$FOO'"],
  );
});

describe('what one instruction may ask for', () => {
  /** No line may have more than 64 KiB, so it goes on in another one after 7,000 words. */
  const words = (count: number, word: (at: number) => string): string =>
    Array.from({ length: count }, (_, at) => `${at > 0 && at % 7000 === 0 ? '\\\n' : ''}${word(at)}`).join(' ');

  for (const [name, line] of [
    ['ENV', (count: number) => `ENV ${words(count, (at) => `a${at}=b`)}`],
    ['ARG', (count: number) => `ARG ${words(count, (at) => `a${at}`)}`],
    ['COPY', (count: number) => `COPY ${words(count, () => 'a')}`],
    ['EXPOSE', (count: number) => `EXPOSE ${words(count, () => '1')}`],
    ['VOLUME', (count: number) => `VOLUME ${words(count, () => '/a')}`],
    ['RUN', (count: number) => `RUN [${words(count, () => '"a",')}"a"]`],
  ] as const) {
    it(`is limited: words of ${name}`, () => {
      const dockerfile = (count: number): string => `FROM scratch\n${line(count)}\n`;
      assert.equal(parseDockerfile(dockerfile(9_999)).stages[0]?.instructions.length, 1);
      assert.throws(() => parseDockerfile(dockerfile(10_001)), /an instruction has more than 10000 words/);
    });
  }

  it('is limited: heredocs, and how often it names one', () => {
    const run = (count: number): string => `FROM scratch\nRUN ${words(count, () => '<<a')}\n${'a\n'.repeat(count)}`;
    assert.equal(parseDockerfile(run(1000)).stages[0]?.instructions.length, 1);
    assert.throws(() => parseDockerfile(run(1001)), /an instruction has more than 1000 heredocs/);
    const copy = (length: number): string =>
      `FROM scratch\nCOPY ${words(9, () => '<<-a')} /\n${'a\n'.repeat(8)}${'\tx\n'.repeat(length)}a\n`;
    assert.equal(parseDockerfile(copy(30_000)).stages[0]?.instructions.length, 1);
    assert.throws(() => parseDockerfile(copy(40_000)), /an instruction names its heredocs too often/);
  });

  it('is limited: variables that stages take over, also where nothing is built', () => {
    const stages = lines(40, (at) => `FROM s${at} AS s${at + 1}\n`);
    const text = `FROM scratch AS s0\nENV ${words(8_000, (at) => `a${at}=b`)}\n${stages}`;
    const { error } = whole(checkParts(parseDockerfile(text), ALL));
    assert.match(error?.message ?? '', /the stages have too many variables/);
    assert.ok((error?.lines?.start ?? 0) > 30, 'the stage that is one too many is blamed');
  });

  it('a stage has a part for each thousand variables that it takes over', () => {
    const graph = StageGraph.of(parseDockerfile('FROM scratch\n'), OPTIONS);
    const imageEnv = Array.from({ length: 50_000 }, (_, at) => [`a${at}`, 'b'] as const);
    const parts = StageScope.parts({ imageEnv }, graph.globals, OPTIONS.buildArgs, graph.expander);
    assert.ok(countParts(parts) >= 100);
  });

  it('is limited: flags, and ports that variables name', () => {
    assert.throws(
      () => parseDockerfile(`FROM scratch\nRUN ${words(1001, () => '--mount=type=ssh')} true\n`),
      /an instruction has more than 1000 flags/,
    );
    const text = `FROM scratch\nENV p="${words(6_000, () => '1')}"\nEXPOSE $p $p\n`;
    const { error } = whole(checkParts(parseDockerfile(text), ALL));
    assert.match(error?.message ?? '', /an instruction has more than 10000 words/);
  });
});
