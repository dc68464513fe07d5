/** RUN steps of builds need these parts of the daemon. */
import type { StepDefaults } from '../actors/build/run/step-container.js';
import type { StepRunDeps } from '../actors/build/run/run-step.js';
import type { BuildCache } from '../ports/build-cache.js';
import { cgroupsPathFor } from '../runtime/cgroup-path.js';
import type { Base } from './base.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import { containerDefaults } from './settings.js';

export function stepRunDeps(
  base: Base,
  { layers, tasks, specs, stdio, network, pool }: Drivers,
  { deps: { ioRoot, placesRoot, rootsRoot } }: Pick<Containers, 'deps'>,
  cache: BuildCache,
): StepRunDeps {
  const { log, idMaps, shownMaps, temporary } = base;
  return {
    layers,
    tasks,
    specs,
    stdio,
    network,
    pool,
    cache,
    log,
    userMaps: idMaps ?? shownMaps,
    shownMaps,
    ioRoot,
    placesRoot,
    rootsRoot,
    tmpDir: temporary.tmpDir,
    stepDefaults: () => stepDefaults(base, network),
  };
}

function stepDefaults({ live, facts, host, settings }: Base, network: Drivers['network']): StepDefaults {
  const config = live.whole;
  const { shmSizeBytes, cgroupnsMode } = containerDefaults(config, host.hostname, facts);
  const runtime = settings.runtimeChoice(config.defaultRuntime);
  const driver = runtime.systemdCgroup ? 'systemd' : settings.cgroupDriver;
  return {
    shmSizeBytes,
    cgroupnsMode,
    runtime,
    dns: config.dns,
    dnsSearch: config.dnsSearch,
    dnsOptions: config.dnsOpts,
    hostGatewayIps: config.hostGatewayIps.length > 0 ? config.hostGatewayIps : network.hostAddresses(),
    cgroupsPath: (id, wanted) => {
      const named = wanted || config.cgroupParent;
      // Runtimes may have different cgroup drivers; the systemd driver wants slices as parents.
      const parent = driver === settings.cgroupDriver || named.endsWith('.slice') ? named : '';
      return cgroupsPathFor({ driver, parent, id, version: facts.cgroup.version, ownCgroup: facts.cgroup.own });
    },
  };
}
