/**
 * npm run kubelet -- [--kubelet PROGRAM] [--cri-dockerd PROGRAM] [--focus EXPRESSION] [--peer VERSION]:
 * runs a kubelet in front of cri-dockerd, once with dockerd and once with this engine, each in a sandbox of its own,
 * and prints what came of pods from files and of restarts under them, side by side. The two programs are statically
 * linked ones of the machine, found on PATH by default; nothing fetches them. Ends with status 1 when something comes
 * out otherwise with this engine than with dockerd.
 */
import { command } from './prepare.mjs';
import { prepareNode, readPrograms } from './node-programs.mjs';
import { runBoth } from './side-by-side.mjs';

const said = ({ facts, message } = {}) => (facts ?? message ?? 'nothing').split('\n').slice(0, 8).join('\n      ');

await command('npm run kubelet', async () => {
  const args = readPrograms('kubelet', 'cri-dockerd');
  prepareNode();
  const [theirs, ours] = await runBoth({ program: 'kubelet', args });
  const byName = new Map(theirs.outcomes.map((outcome) => [outcome.name, outcome]));
  console.log(`| scenario | ${theirs.engine} | ${ours.engine} |\n| --- | --- | --- |`);
  for (const { name, state } of ours.outcomes) console.log(`| ${name} | ${byName.get(name)?.state} | ${state} |`);
  let differences = 0;
  for (const own of ours.outcomes) {
    const other = byName.get(own.name);
    const differs = own.state !== other?.state || own.facts !== other.facts;
    if (differs) differences++;
    console.log(`\n${differs ? '!' : '='} ${own.name}\n    engined: ${said(own)}`);
    if (differs || own.state === 'failed') console.log(`    dockerd: ${said(other)}`);
  }
  if (differences > 0) throw new Error(`${differences} scenarios come out otherwise than with dockerd`);
});
