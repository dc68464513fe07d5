/**
 * kubelet.js ENGINE RESULTS KUBELET CRI-DOCKERD [FOCUS]: runs a kubelet without a cluster, whose pods come from files,
 * in front of cri-dockerd and `engined` or `dockerd`, and writes what came of each scenario to the file RESULTS. A
 * regular expression FOCUS takes the scenarios whose names it matches. To be run in a sandbox of its own
 * (scripts/kubelet.mjs).
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cleanup } from '../support/cleanup.js';
import { dockerd } from '../support/dockerd.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startRegistry } from '../support/registry.js';
import { PAUSE, pushCritestImages } from './critest-images.js';
import { Kubelet } from './kubelet-process.js';
import { LIVES } from './kubelet-lives.js';
import { PODS } from './kubelet-pods.js';
import { RESTARTS } from './kubelet-restarts.js';
import type { Scenario, Scene } from './kubelet-scene.js';
import { ENGINE_FLAGS, KubernetesNode, tail } from './kubernetes-node.js';
import { type Outcome, versions } from './outcome.js';

/** The end of a scenario. `facts` is what the kubelet said of it, in one line. */
interface ScenarioOutcome extends Outcome {
  readonly facts?: string;
}

const [name, results = '', kubeletProgram = '', criDockerd = '', focus = ''] = process.argv.slice(2);
const cleanup = new Cleanup();
const dir = mkdtempSync(join(tmpdir(), 'kubelet-'));
let node: KubernetesNode | undefined;

/** The next dockerd finds the mounts of the first one, where the sockets of its shims are: else it makes a new /run. */
function dockerdOnOneMachine(): EngineKind {
  const kind = dockerd({ args: ENGINE_FLAGS });
  return {
    ...kind,
    command(engineDir, socketPath) {
      const whole = kind.command(engineDir, socketPath);
      return node === undefined ? whole : node.command(whole.slice(whole.indexOf('dockerd')));
    },
  };
}

async function outcomeOf(scenario: Scenario, scene: Scene): Promise<ScenarioOutcome> {
  const { name } = scenario;
  try {
    return { name, state: 'passed', facts: await scenario.run(scene) };
  } catch (error) {
    return { name, state: 'failed', message: error instanceof Error ? error.message : String(error) };
  }
}

/** Those that only look at pods of their own run together; those that end programs of the node run by turns. */
async function runScenarios(scene: Scene): Promise<ScenarioOutcome[]> {
  const isWanted = (scenario: Scenario): boolean => new RegExp(focus).test(scenario.name);
  const together = [...PODS, ...LIVES].filter(isWanted);
  const outcomes = await Promise.all(together.map((scenario) => outcomeOf(scenario, scene)));
  for (const scenario of RESTARTS.filter(isWanted)) outcomes.push(await outcomeOf(scenario, scene));
  return outcomes;
}

try {
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  await pushCritestImages(registry.url);
  const engine = await Engine.start(name === 'dockerd' ? dockerdOnOneMachine() : engined({ args: ENGINE_FLAGS }));
  cleanup.add(() => engine.discard());
  const first = (node = new KubernetesNode(engine, dir));
  cleanup.add(() => first.close());
  const translator = node.translator(criDockerd, `${registry.host}/${PAUSE.slice(PAUSE.indexOf('/') + 1)}`);
  cleanup.add(() => translator.stop('SIGKILL'));
  await translator.start();
  const kubelet = new Kubelet(node, dir, kubeletProgram);
  cleanup.add(() => kubelet.stop('SIGKILL'));
  await kubelet.start();
  const outcomes = await runScenarios({ engine, translator, kubelet, dir, registry: registry.host });
  writeFileSync(results, JSON.stringify({ engine: await versions(engine), outcomes }));
  if (outcomes.some(({ state }) => state === 'failed'))
    console.log([kubelet.log, translator.log].map((log) => `${log}:\n${tail(log)}`).join('\n'));
} finally {
  await cleanup.run();
}
