import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { whole } from '../../text/turns.js';
import { DockerfileError } from './dockerfile-error.js';
import { parseDockerfile } from './parse.js';
import { StageScope } from './scope.js';
import { type GraphOptions, StageGraph } from './stage-graph.js';

const AMD64 = { os: 'linux', architecture: 'amd64', variant: '', osVersion: '' };
const OPTIONS: GraphOptions = {
  target: '',
  buildArgs: new Map(),
  host: AMD64,
  buildPlatform: AMD64,
  targetPlatform: AMD64,
  hasContext: () => false,
};

function graph(text: string, options: Partial<GraphOptions> = {}): StageGraph {
  return StageGraph.of(parseDockerfile(text), { ...OPTIONS, ...options });
}

function problem(text: string, options: Partial<GraphOptions> = {}): string {
  try {
    const made = graph(text, options);
    made.refuseForwardReferences(made.reachable());
  } catch (error) {
    assert.ok(error instanceof DockerfileError, String(error));
    return `${error.message} @${error.lines?.start}`;
  }
  return 'none';
}

describe('stages', () => {
  it('are found by name, index, image and context', () => {
    const { stages } = graph(
      'ARG v=3\nFROM alpine:$v AS a\nFROM a AS b\nCOPY --from=0 x .\nCOPY --from=busybox x .\nCOPY --from=ctx x .\n' +
        'FROM scratch\nRUN --mount=from=A,target=/x --mount=type=cache,target=/y z\nFROM ctx',
      { hasContext: (key) => key === 'ctx' },
    );
    assert.deepEqual(
      stages.map(({ base, label }) => [label, base]),
      [
        ['a', { kind: 'image', name: 'docker.io/library/alpine:3', written: 'alpine:3' }],
        ['b', { kind: 'stage', index: 0 }],
        ['stage-2', { kind: 'scratch' }],
        ['stage-3', { kind: 'context', name: 'ctx' }],
      ],
    );
    assert.deepEqual([...(stages[1]?.sources.values() ?? [])].flat(), [
      { kind: 'stage', index: 0 },
      { kind: 'image', name: 'docker.io/library/busybox:latest', written: 'busybox' },
      { kind: 'context', name: 'ctx' },
    ]);
    assert.deepEqual([...(stages[2]?.sources.values() ?? [])].flat(), [{ kind: 'stage', index: 0 }, undefined]);
  });

  it('are built only when the target needs them', () => {
    const text = 'FROM a AS a\nFROM b AS b\nCOPY --from=a x .\nFROM c AS c\nFROM b\n';
    assert.deepEqual(graph(text).reachable(), [0, 1, 3]);
    assert.deepEqual(graph(text, { target: 'C' }).reachable(), [2]);
  });

  it('get the triggers of their base, which may need more stages', () => {
    const made = graph('FROM a AS x\nFROM b');
    whole(made.addTriggers(1, ['COPY --from=x /a /b', 'RUN c']));
    assert.deepEqual(made.reachable(), [0, 1]);
    assert.deepEqual(
      made.stages[1]?.instructions.map(({ kind, lines }) => [kind, lines.start]),
      [
        ['COPY', 2],
        ['RUN', 2],
      ],
    );
    // Each stage that is based on one with many triggers has all of them.
    whole(
      made.addTriggers(
        0,
        Array.from({ length: 9_998 }, () => 'RUN d'),
      ),
    );
    assert.throws(() => whole(made.addTriggers(1, ['RUN e'])), /the stages have more than 10000 triggers/);
  });

  it('may be replaced by a context for a platform', () => {
    const { stages } = graph('FROM a AS x\nRUN y', { hasContext: (key) => key === 'x::linux/amd64' });
    assert.deepEqual([stages[0]?.base, stages[0]?.isReplaced], [{ kind: 'context', name: 'x::linux/amd64' }, true]);
  });
});

describe('wrong stages', () => {
  const cases: readonly (readonly [string, string, Partial<GraphOptions>?])[] = [
    ['FROM $x', 'base name ($x) should not be blank @1'],
    ['FROM a\nCOPY --from=0 x .', 'circular dependency detected on stage: stage-0 @2'],
    ['FROM a\nCOPY --from=7 x .', 'invalid stage index 7 @undefined'],
    [
      'FROM A',
      'failed to parse stage name "A": invalid reference format: repository name (library/A) must be lowercase @1',
    ],
    ['FROM a:b:c', 'failed to parse stage name "a:b:c": invalid reference format @1'],
    [
      'FROM a AS x\nCOPY --from=y a b\nFROM b AS y',
      'cannot copy from stage "y", it needs to be defined before current stage "x" @2',
      { target: 'x' },
    ],
    ['FROM a AS x\nCOPY --from=y a b\nFROM b AS y\nCOPY --from=x a b', 'circular dependency detected on stage: x @2'],
    ['FROM a AS name', 'target stage "nane" could not be found (did you mean name?) @undefined', { target: 'nane' }],
    [
      'FROM --platform=fooo a',
      'failed to parse platform fooo: "fooo": unknown operating system or architecture: invalid argument @1',
    ],
    [
      'FROM --platform=$TARGETPLATFOR a',
      'empty platform value from expression $TARGETPLATFOR (did you mean TARGETPLATFORM?) @1',
    ],
  ];
  for (const [text, expected, options] of cases)
    it(JSON.stringify(text), () => assert.equal(problem(text, options), expected));
});

describe('variables of a stage', () => {
  function run(text: string, buildArgs = new Map<string, string | undefined>()): StageScope {
    const made = graph(text, { buildArgs });
    const scopes: StageScope[] = [];
    for (const { base, instructions } of made.stages) {
      const stage = base.kind === 'stage' ? scopes[base.index] : undefined;
      const scope = StageScope.of({ imageEnv: [['BASE', '1']], stage }, made.globals, buildArgs, made.expander);
      for (const instruction of instructions) whole(scope.next(instruction));
      scopes.push(scope);
    }
    const last = scopes.at(-1);
    assert.ok(last);
    return last;
  }

  it('come from arguments, defaults and the image', () => {
    const { env, imageEnv, args } = run(
      'ARG g=1\nARG h=$g$g\nFROM a\nARG g h\nARG i=$BASE-$g\nARG TARGETARCH\nENV E=$h F=$E\nENV F="${F:-f}$i"',
      new Map([
        ['g', '7'],
        ['i', undefined],
      ]),
    );
    assert.deepEqual(
      [...env].filter(([key]) => key !== 'PATH' && key !== 'BASE'),
      [
        ['g', '7'],
        ['h', '77'],
        ['TARGETARCH', 'amd64'],
        ['E', '77'],
        ['F', 'f'],
      ],
    );
    assert.deepEqual([...imageEnv.keys()], ['BASE', 'PATH', 'E', 'F']);
    assert.deepEqual(args.at(2), { key: 'i', value: undefined });
  });

  it('are listed for the steps of RUN, which share a list as long as nothing changes', () => {
    const made = graph('FROM a\nARG k=1\nRUN a\nRUN b\nENV l=22\nARG m\nENV k=33\nARG k\nRUN c');
    const scope = StageScope.of({ imageEnv: [['PATH', '/p']] }, made.globals, new Map(), made.expander);
    const lists: (readonly string[])[] = [];
    const shown: string[] = [];
    for (const instruction of made.stages[0]?.instructions ?? []) {
      whole(scope.next(instruction));
      if (instruction.kind !== 'RUN') continue;
      lists.push(scope.entries());
      shown.push(scope.shownArgs());
      assert.equal(scope.characters, [...scope.env].flat().join('').length);
    }
    assert.equal(lists[0], lists[1]);
    assert.deepEqual(lists.slice(1), [
      ['PATH=/p', 'k=1'],
      ['PATH=/p', 'k=33', 'l=22'],
    ]);
    assert.deepEqual(shown, ['|1 k=1', '|1 k=1', '|2 k=33 m=']);
  });

  it('go on in a stage that is based on this one', () => {
    const { env, args } = run('FROM a AS x\nARG k=1\nENV l=2\nFROM x\nENV m=$k$l');
    assert.equal(env.get('m'), '12');
    assert.deepEqual(args, [{ key: 'k', value: '1' }]);
  });
});
