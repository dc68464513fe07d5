/**
 * Every option of the daemon is seen at work: each has a row that looks at its effect in a running daemon, names the
 * test that does, or checks that the daemon reports that it has no effect.
 */
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { OPTION_LIST, type NamedOption } from '../../src/config/options.js';
import { containers } from '../flag-effects/containers.js';
import { daemon } from '../flag-effects/daemon.js';
import { ELSEWHERE } from '../flag-effects/elsewhere.js';
import { LONE } from '../flag-effects/lone.js';
import { ONE, Scene, type Group } from '../flag-effects/scene.js';
import { supervisor } from '../flag-effects/supervisor.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const GROUPS: readonly Group[] = [containers, daemon, supervisor];

for (const group of GROUPS) {
  describe(group.title, () => {
    const own = new Cleanup();
    let scene: Scene;

    before(async () => {
      const dir = mkdtempSync(join(tmpdir(), 'flag-effects-'));
      chmodSync(dir, 0o755);
      own.add(async () => rmSync(dir, { recursive: true, force: true }));
      const { args = [], ...rest } = await group.setUp(dir, own);
      // The daemon would set a policy of the host when it switches forwarding on, and that would stay after the test.
      const kind = engined({ ...rest, args: ['--ip-forward-no-drop', ...args] });
      const engine = await Engine.start(await withImage(kind));
      own.add(() => engine.close());
      scene = new Scene(engine, SEEDED_IMAGE, dir, kind.mark);
      await scene.docker('run', '-d', '--name', ONE, '--stop-timeout', '1', scene.image, 'sleep', '6000');
    });
    after(() => own.run());

    for (const [option, observe] of Object.entries(group.rows)) test(option, () => observe(scene));
  });
}

describe('without a daemon', () => {
  for (const [option, observe] of Object.entries(LONE)) test(option, observe);
});

/** The option as a command line, a configuration file or an environment spells it. */
function spellings({ flag, key, env = [] }: NamedOption): readonly string[] {
  const flags = flag === undefined ? [] : [`--${flag}`];
  const keys = key === undefined ? [] : [`'${key}'`, `${key}:`, `${key} }`];
  return [...flags, ...keys, ...env];
}

test('what other files test is tested there', () => {
  for (const { file, title, options } of ELSEWHERE) {
    const text = readFileSync(new URL(`../${file}.test.js`, import.meta.url), 'utf8');
    assert.ok(text.includes(`'${title}`), `test/${file}.test.ts has no test "${title}"`);
    for (const option of OPTION_LIST.filter(({ name }) => options.includes(name))) {
      const isSet = spellings(option).some((spelling) => text.includes(spelling));
      assert.ok(isSet, `test/${file}.test.ts does not set ${option.title}`);
    }
  }
});

test('no option is without a row', () => {
  const inGroups = GROUPS.flatMap(({ rows }) => Object.keys(rows));
  const inFiles = ELSEWHERE.flatMap(({ options }) => options);
  const rows: readonly string[] = [...inGroups, ...Object.keys(LONE), ...inFiles];
  assert.deepEqual(
    OPTION_LIST.flatMap(({ name }) => (rows.includes(name) ? [] : [name])),
    [],
  );
});
