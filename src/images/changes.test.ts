import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import type { ImageRuntimeConfig } from '../ports/images.js';
import { applyChanges } from './changes.js';

test('instructions change the configuration as a Dockerfile would', () => {
  const table: readonly (readonly [string | readonly string[], ImageRuntimeConfig])[] = [
    ['CMD ["a", "b c"]', { Cmd: ['a', 'b c'] }],
    ['CMD echo hi $X', { Cmd: ['/bin/sh', '-c', 'echo hi $X'] }],
    ['cmd [not json', { Cmd: ['/bin/sh', '-c', '[not json'] }],
    [['SHELL ["/bin/bash","-ec"]', 'CMD x'], { Shell: ['/bin/bash', '-ec'], Cmd: ['/bin/bash', '-ec', 'x'] }],
    ['ENTRYPOINT []', { Entrypoint: [] }],
    ['ENTRYPOINT ["/init"]', { Entrypoint: ['/init'] }],
    ['ENV A=1 B="two words" C=x\\ y', { Env: ['A=1', 'B=two words', 'C=x y'] }],
    ['ENV KEY some value', { Env: ['KEY=some value'] }],
    [['ENV A=1', 'ENV B=2', 'ENV A=3'], { Env: ['A=3', 'B=2'] }],
    [
      'EXPOSE 80 443/tcp 53/udp 8000-8001',
      { ExposedPorts: { '80/tcp': {}, '443/tcp': {}, '53/udp': {}, '8000/tcp': {}, '8001/tcp': {} } },
    ],
    ['LABEL a=b "c d"="e f"', { Labels: { a: 'b', 'c d': 'e f' } }],
    ['ONBUILD RUN make', { OnBuild: ['RUN make'] }],
    ['STOPSIGNAL SIGQUIT', { StopSignal: 'SIGQUIT' }],
    [['ENV S=9', 'STOPSIGNAL $S'], { Env: ['S=9'], StopSignal: '9' }],
    [['CMD ["a"]', 'ENTRYPOINT ["/init"]'], { Entrypoint: ['/init'], Cmd: ['a'] }],
    ['USER 1000:1000', { User: '1000:1000' }],
    ['VOLUME /a /b', { Volumes: { '/a': {}, '/b': {} } }],
    ['VOLUME ["/c d"]', { Volumes: { '/c d': {} } }],
    [['WORKDIR /a', 'WORKDIR b/../c'], { WorkingDir: '/a/c' }],
    ['HEALTHCHECK NONE', { Healthcheck: { Test: ['NONE'] } }],
    [
      'HEALTHCHECK --interval=1m30s --retries=3 CMD curl -f x',
      { Healthcheck: { Test: ['CMD-SHELL', 'curl -f x'], Interval: 90e9, Retries: 3 } },
    ],
    ['HEALTHCHECK CMD ["a","b"]', { Healthcheck: { Test: ['CMD', 'a', 'b'] } }],
    ['# a comment\n\nUSER x', { User: 'x' }],
  ];
  for (const [change, expected] of table)
    assert.deepEqual(applyChanges({}, typeof change === 'string' ? [change] : change), expected, String(change));
});

test('variables of the environment so far are replaced, as single words', () => {
  const env = ['PATH=/bin', 'S=a "b" $c', 'EMPTY='];
  const table: readonly (readonly [string, ImageRuntimeConfig])[] = [
    ['ENV PATH=/x:$PATH', { Env: ['PATH=/x:/bin', 'S=a "b" $c', 'EMPTY='] }],
    ['ENV PATH=/x PLACE=${PATH}/y', { Env: ['PATH=/x', 'S=a "b" $c', 'EMPTY=', 'PLACE=/bin/y'] }],
    [`ENV A=$S B="<$S>" C='$S' D=\\$S`, { Env: [...env, 'A=a "b" $c', 'B=<a "b" $c>', 'C=$S', 'D=$S'] }],
    ['ENV OLD form of $PATH', { Env: [...env, 'OLD=form of /bin'] }],
    ['LABEL p=$PATH none=$NONE money=5$', { Env: env, Labels: { p: '/bin', none: '', money: '5$' } }],
    [
      'LABEL d=${NONE:-else} e=${EMPTY:-else} i=${PATH:+instead} n=${NONE:+instead}',
      { Env: env, Labels: { d: 'else', e: 'else', i: 'instead', n: '' } },
    ],
    ['WORKDIR $PATH/$constructor', { Env: env, WorkingDir: '/bin' }],
    ['CMD echo $PATH', { Env: env, Cmd: ['/bin/sh', '-c', 'echo $PATH'] }],
  ];
  for (const [change, expected] of table) assert.deepEqual(applyChanges({ Env: env }, [change]), expected, change);
  for (const bad of ['ENV A=${PATH', 'ENV A=${PATH%x}', 'ENV A=${}'])
    assert.throws(
      () => applyChanges({ Env: env }, [bad]),
      (error) => isEngineError(error, 'invalid'),
      bad,
    );
  const doubling = ['ENV A=0123456789', ...Array.from({ length: 60 }, () => 'ENV A=$A$A')];
  assert.throws(() => applyChanges({}, doubling), /too long with its variables/);
});

test('the given configuration is not changed', () => {
  const config: ImageRuntimeConfig = { Env: ['A=1'], Labels: { a: 'b' } };
  applyChanges(config, ['ENV A=2', 'LABEL a=c']);
  assert.deepEqual(config, { Env: ['A=1'], Labels: { a: 'b' } });
});

test('what cannot be applied is refused by name', () => {
  const table: readonly (readonly [string, RegExp])[] = [
    ['', /^file with no instructions$/],
    [' \n# a note', /^file with no instructions$/],
    ['RUN x', /^RUN is not a valid change command$/],
    ['ENV', /ENV requires at least one argument/],
    ['ENV A', /ENV must have two arguments/],
    ['ENV A=1 B', /can't find = in "B"/],
    ['ENV =x', /names can not be blank/],
    ['EXPOSE x', /invalid containerPort: x/],
    ['EXPOSE 90-80', /invalid containerPort/],
    ['EXPOSE 99999', /invalid containerPort/],
    ['ONBUILD FROM x', /FROM isn't allowed/],
    ['SHELL bash', /JSON form/],
    ['STOPSIGNAL', /^STOPSIGNAL requires exactly one argument$/],
    ['STOPSIGNAL nosuch', /^invalid signal: nosuch$/],
    ['USER', /^USER requires exactly one argument$/],
    ['HEALTHCHECK x', /Unknown type "x"/],
    ['HEALTHCHECK --interval=x CMD y', /invalid duration/],
    ['HEALTHCHECK --bogus=1 CMD y', /Unknown flag: bogus/],
  ];
  for (const [change, message] of table)
    assert.throws(
      () => applyChanges({}, [change]),
      (error) => isEngineError(error, 'invalid') && message.test(error.message),
      change,
    );
});
