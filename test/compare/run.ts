/** npm run compare: the same requests to dockerd and to engined; prints what differs. To be run in a network namespace of its own. */
import { execFileSync } from 'node:child_process';
import { Cleanup } from '../support/cleanup.js';
import { startSeededRegistry } from '../support/busybox-image.js';
import { dockerd } from '../support/dockerd.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { pullOk } from '../support/pulls.js';
import { differences, play, type Answer } from './compare.js';
import { explained } from './explained.js';
import { SCRIPT } from './script.js';

const cleanup = new Cleanup();
execFileSync('ip', ['link', 'set', 'lo', 'up']);
try {
  const registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  const run = async (engine: Engine): Promise<Answer[]> => {
    cleanup.add(() => engine.discard());
    await pullOk(engine, registry.reference);
    return play(engine, SCRIPT, { image: registry.reference, host: registry.host });
  };
  const [theirs, ours] = [await run(await Engine.start(dockerd())), await run(await Engine.start(engined()))];
  let differing = 0;
  for (const [index, { method, path, json }] of SCRIPT.entries()) {
    const [their, our] = [theirs[index], ours[index]];
    if (!their || !our) continue;
    const lines = differences(their, our).filter((line) => !explained(method, path, line));
    if (lines.length === 0) continue;
    differing++;
    console.log(`${method} ${path}${json === undefined ? '' : ` ${JSON.stringify(json).slice(0, 160)}`}`);
    for (const line of lines) console.log(`  ${line}`);
    if (their.status !== our.status || process.env['VERBOSE']) console.log(`    dockerd: ${their.text.trim().slice(0, 300)}\n    engined: ${our.text.trim().slice(0, 300)}`);
  }
  console.log(`${SCRIPT.length} requests, ${differing} with differences that docs/differences.md does not explain`);
  process.exitCode = differing === 0 ? 0 : 1;
} finally {
  await cleanup.run();
}
