/** The classic builder tells of its work in the lines of dockerd 28.5.2. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { type EngineWithImage, startEngineWithImage } from '../support/engine-with-image.js';
import { archiveOf } from '../support/image-archives.js';
import { call } from '../support/http.js';

const RUNNING = ' ---> Running in ID';
const REMOVED = ' ---> Removed intermediate container ID';
const CACHED = ' ---> Using cache';
const MADE = ' ---> ID';
const AUX = '{"aux":{"ID":"ID"}}';
const BUILT = 'Successfully built ID';

const lines = (...parts: readonly (string | readonly string[])[]): string[] => parts.flat();

describe('the lines of a classic build', () => {
  const cleanup = new Cleanup();
  let under: EngineWithImage;
  before(async () => void (under = await startEngineWithImage(cleanup)));
  after(() => cleanup.run());

  /** Returns the lines, with the text of those that have one. The last line is the error of a build that fails. */
  async function told(dockerfile: string, query = 'rm=1'): Promise<string[]> {
    const body = archiveOf([
      { path: 'Dockerfile', content: dockerfile },
      { path: 'f', content: 'f' },
    ]);
    const { text } = await call(under.engine.socketPath, 'POST', `/build?${query}`, {
      headers: { 'Content-Type': 'application/x-tar' },
      body,
    });
    assert.doesNotMatch(text, /[<>]/, 'markup is escaped, as Go does it');
    const shown = text
      .trim()
      .split(/\r?\n/)
      .map((line) => {
        const { stream, error, message, ...others } = JSON.parse(line) as Readonly<Record<string, string>>;
        return stream ?? error ?? message ?? JSON.stringify(others);
      });
    return plain(shown.join('\0')).replaceAll('\n', '').split('\0').filter(Boolean);
  }

  const plain = (text: string): string =>
    text
      .replaceAll(under.image, 'IMAGE')
      .replace(/sha256:[0-9a-f]{64}/g, 'ID')
      .replace(/\b[0-9a-f]{12}\b/g, 'ID');
  const from = (...lines: readonly string[]): string => [`FROM ${under.image}`, ...lines, ''].join('\n');

  it('has those of a container for each step but COPY and ADD, which is gone when the step is done', async () => {
    const dockerfile = `ARG GLOBAL=1\n${from('ENV TOLD=1', 'WORKDIR /w', 'COPY f .', 'CMD a')}`;
    const step = (number: number, text: string): string => `Step ${number}/6 : ${text}`;
    assert.deepEqual(
      await told(dockerfile),
      lines(
        step(1, 'ARG GLOBAL=1'),
        [step(2, 'FROM IMAGE'), MADE],
        [step(3, 'ENV TOLD=1'), RUNNING, REMOVED, MADE],
        [step(4, 'WORKDIR /w'), RUNNING, REMOVED, MADE],
        [step(5, 'COPY f .'), MADE],
        [step(6, 'CMD a'), RUNNING, REMOVED, MADE],
        [AUX, BUILT],
      ),
    );
    assert.equal((await told(dockerfile)).filter((line) => line === CACHED).length, 4);
    assert.equal((await told(from('ENV TOLD=2'), 'forcerm=1')).filter((line) => line === REMOVED).length, 1);
  });

  it('has no line about the end of a container that stays', async () => {
    const { socketPath } = under.engine;
    const { text } = await call(socketPath, 'POST', '/build?rm=0', {
      headers: { 'Content-Type': 'application/x-tar' },
      body: archiveOf([{ path: 'Dockerfile', content: from('LABEL stays=1') }]),
    });
    assert.doesNotMatch(text, /Removed/);
    const id = /Running in ([0-9a-f]{12})/.exec(text)?.[1] ?? '';
    const shown = await engineOk(under.engine, ['inspect', '-f', '{{.State.Status}} {{.Config.Cmd}}', id]);
    assert.match(shown, /^created \[\/bin\/sh -c #\(nop\) +LABEL stays=1\]$/);
    await engineOk(under.engine, ['rm', id]);
  });

  it('takes steps on nothing from the cache', async () => {
    const dockerfile = 'FROM scratch\nLABEL told=1\nCOPY f /\n';
    assert.equal((await told(dockerfile)).includes(CACHED), false);
    assert.deepEqual(
      (await told(dockerfile)).filter((line) => line === CACHED),
      [CACHED, CACHED],
    );
  });

  it('tells of triggers before the image that they begin with', async () => {
    await told(from('ONBUILD ENV A=b', 'ONBUILD COPY f /f'), 'rm=1&t=told/trigger');
    const triggered = ['# Executing 2 build trigger', 's', RUNNING, REMOVED, MADE, AUX, BUILT];
    assert.deepEqual(await told('FROM told/trigger\n'), ['Step 1/1 : FROM told/trigger', ...triggered]);
    await told(from('ONBUILD ENV A=b'), 'rm=1&t=told/trigger');
    assert.equal((await told('FROM told/trigger\n'))[1], '# Executing 1 build trigger');
  });

  it('finds stages by names in any case, and files without a slash in the place that is named', async () => {
    const dockerfile = from('COPY f /e/.').replace('\n', ' AS One\n') + 'FROM ONE\nCOPY --from=oNE /e /g\nRUN cat /g\n';
    const all = await told(dockerfile);
    assert.deepEqual(all.slice(all.indexOf(RUNNING), -2), [RUNNING, 'f', REMOVED, MADE]);
    assert.equal((await told(dockerfile, 'rm=1&target=oNe')).filter((line) => line.startsWith('Step')).length, 2);
  });

  it('names the arguments that nothing has used by their order', async () => {
    const args = encodeURIComponent(JSON.stringify({ Z: '1', HTTP_PROXY: 'p', A: '1' }));
    const warning = '[Warning] One or more build-args [A Z] were not consumed';
    assert.equal((await told(from(), `rm=1&buildargs=${args}`)).at(-2), warning);
  });

  it('says what is wrong where dockerd does', async () => {
    const labs = `# syntax=docker/dockerfile:1-labs\n${from('COPY --parents f /')}`;
    const cases: readonly (readonly [dockerfile: string, ...told: (string | readonly string[])[]])[] = [
      ['# nothing\n', 'failed to parse Dockerfile: file with no instructions'],
      ['# escape=x\nFROM a\n', "failed to parse Dockerfile: invalid escape token 'x' does not match ` or \\"],
      [from('RUNN x'), 'dockerfile parse error on line 2: unknown instruction: RUNN (did you mean RUN?)'],
      [labs, 'dockerfile parse error on line 3: unknown flag: --parents'],
      [
        'FROM scratch\nCOPY f /\nFROM --platform=a/b/c/d x\n',
        ['Step 1/3 : FROM scratch', ' ---> ', 'Step 2/3 : COPY f /', CACHED, MADE, AUX],
        'Step 3/3 : FROM --platform=a/b/c/d x',
        'failed to parse platform a/b/c/d: "a/b/c/d": cannot parse platform specifier: invalid argument',
      ],
      ['FROM Bad:1\n', 'Step 1/1 : FROM Bad:1', NOT_LOWER('library/Bad')],
      [
        'FROM scratch AS a\nCOPY f /\nFROM scratch AS A\n',
        [
          'Step 1/3 : FROM scratch AS a',
          ' ---> ',
          'Step 2/3 : COPY f /',
          CACHED,
          MADE,
          AUX,
          'a stage name already used',
        ],
      ],
      ...[
        ['foo', 'Invalid containerPort: foo'],
        ['80/foo', 'Invalid proto: foo'],
        ['80:', 'No port specified: 80:<empty>'],
        ['300.1.1.1:80:80', 'Invalid ip address: 300.1.1.1'],
      ].map(
        ([port, words = '']) =>
          [from(`EXPOSE ${port} `), ['Step 1/2 : FROM IMAGE', MADE, `Step 2/2 : EXPOSE ${port}`], words] as const,
      ),
      ['ARG B\nFROM $B\n', 'Step 1/2 : ARG B', 'Step 2/2 : FROM $B', 'base name ($B) should not be blank'],
      [
        from('COPY --from=1 /f /').replace('\n', ' AS one\n') + 'FROM scratch\n',
        ['Step 1/3 : FROM IMAGE AS one', MADE, 'Step 2/3 : COPY --from=1 /f /'],
        'invalid from flag value 1: index out of bounds',
      ],
    ];
    await told('FROM scratch\nCOPY f /\n');
    for (const [dockerfile, ...expected] of cases) assert.deepEqual(await told(dockerfile), lines(...expected));
    assert.deepEqual(await told(from(), 'target=0'), ['target stage "0" could not be found']);
    const place = '127.0.0.1:1/none:1';
    assert.match((await told(from(`COPY --from=${place} /f /`))).at(-1) ?? '', /^invalid from flag value 127.0.0.1:1/);
  });
});

const NOT_LOWER = (name: string): string => `invalid reference format: repository name (${name}) must be lowercase`;
