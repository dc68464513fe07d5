/** The health checks of running containers: follows the containers' views, keeps an actor for each one to be probed. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../ports/logger.js';
import type { ContainerRecord } from '../container/container.record.js';
import { probeDelayMs, probePlan, type ProbeResult } from '../container/life/health.js';
import { createCollection, type Collection } from '../kit/collection.js';
import type { Replies } from '../kit/replies.js';
import { createHealthMachine, type HealthInput } from './health.machine.js';

type HealthMachine = ReturnType<typeof createHealthMachine>;
type Send = (event: Parameters<Collection<HealthMachine>['logic']['transition']>[1]) => void;

export interface HealthDeps {
  readonly log: Logger;
  readonly replies: Replies;
  /** What readers see of a container. */
  readonly container: (id: string) => ContainerRecord | undefined;
  /** Runs the probe's command in a container; see probe.ts. */
  readonly probe: (container: ContainerRecord, plan: HealthInput['plan'], signal: AbortSignal) => Promise<ProbeResult>;
  /** Tells a container the result of a probe of the run that began at `startedAt`. */
  readonly report: (id: string, startedAt: string, result: ProbeResult) => void;
}

export class HealthChecks {
  readonly collection: Collection<HealthMachine>;
  /** What each actor probes. */
  readonly #probed = new Map<string, { readonly startedAt: string; isPaused: boolean }>();
  #send: Send = () => undefined;

  constructor(private readonly deps: HealthDeps) {
    const machine = createHealthMachine(
      {
        untilNext: async ({ containerId, plan }, signal) => {
          const container = deps.container(containerId);
          if (container)
            await sleep(probeDelayMs(plan, container.state, Date.now()), undefined, { signal, ref: false });
        },
        probe: ({ containerId, plan }, signal) => {
          const container = deps.container(containerId);
          if (!container) throw new Error(`container ${containerId} is gone`);
          return deps.probe(container, plan, signal);
        },
      },
      ({ containerId, startedAt }, result) => deps.report(containerId, startedAt, result),
    );
    this.collection = createCollection({
      kind: 'health',
      logic: machine,
      replies: deps.replies,
      revive: (id) => {
        const container = deps.container(id);
        return container && inputFor(container);
      },
      onCrash: (id, error, revived) =>
        deps.log.error({ err: error, container: id, revived }, 'health check actor crashed'),
    });
  }

  connect(send: Send): void {
    this.#send = send;
  }

  /** To be called with every new view of a container; undefined: it is gone. */
  observe(id: string, container: ContainerRecord | undefined): void {
    const probed = this.#probed.get(id);
    const wanted = container && inputFor(container);
    if (probed && (!wanted || probed.startedAt !== wanted.startedAt)) {
      this.#probed.delete(id);
      this.#send({ type: 'collection.stop', id });
    }
    if (!wanted) return;
    const { startedAt, isPaused } = wanted;
    const current = this.#probed.get(id);
    if (!current) {
      this.#probed.set(id, { startedAt, isPaused });
      this.#send({ type: 'collection.spawn', id, input: wanted });
    } else if (current.isPaused !== isPaused) {
      current.isPaused = isPaused;
      this.collection.children.get(id)?.send({ type: isPaused ? 'health.suspend' : 'health.resume' });
    }
  }
}

/** What the actor of a container begins with; undefined: nothing is to be probed now. */
function inputFor({ id, config, state }: ContainerRecord): HealthInput | undefined {
  if (state.status !== 'running' && state.status !== 'paused') return undefined;
  const plan = probePlan(config);
  return plan && { containerId: id, startedAt: state.startedAt, plan, isPaused: state.status === 'paused' };
}
