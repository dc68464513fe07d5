/**
 * The health checks of running containers: a loop probes each container that has one, as long as the views show that it
 * runs.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../ports/logger.js';
import type { ContainerRecord } from '../container/container.record.js';
import { probeDelayMs, probePlan, type ProbePlan, type ProbeResult } from '../container/life/health.js';
import type { ActorSummary } from '../kit/describe.js';
import { runEffect } from '../kit/faults.js';
import { inTime } from '../kit/pace.js';

export interface HealthDeps {
  readonly log: Logger;
  /** Returns the record that readers see of a container. */
  readonly container: (id: string) => ContainerRecord | undefined;
  /** Runs the command of a probe in a container; see probe.ts. */
  readonly probe: (container: ContainerRecord, plan: ProbePlan, signal: AbortSignal) => Promise<ProbeResult>;
  /** Tells a container the result of a probe of the run that began at `startedAt`. */
  readonly report: (id: string, startedAt: string, result: ProbeResult) => void;
}

/** The probing of one run of a container, until it ends or is paused. */
interface Check {
  readonly startedAt: string;
  readonly over: AbortController;
  state: 'waiting' | 'probing';
}

export class HealthChecks {
  readonly #checks = new Map<string, Check>();

  constructor(private readonly deps: HealthDeps) {}

  /** Takes every new view of a container; undefined: it is gone. */
  observe(id: string, container: ContainerRecord | undefined): void {
    const plan = container?.state.status === 'running' ? probePlan(container.config) : undefined;
    const startedAt = plan && container?.state.startedAt;
    const current = this.#checks.get(id);
    if (current?.startedAt === startedAt) return;
    this.#end(id);
    if (!plan || startedAt === undefined) return;
    const check: Check = { startedAt, over: new AbortController(), state: 'waiting' };
    this.#checks.set(id, check);
    void this.#run(id, plan, check);
  }

  /** Ends all probing. */
  close(): void {
    for (const id of this.#checks.keys()) this.#end(id);
  }

  describe(): readonly ActorSummary[] {
    return [...this.#checks].map(([id, { state }]) => ({ id, state, effects: [], unanswered: 0 }));
  }

  #end(id: string): void {
    this.#checks.get(id)?.over.abort();
    this.#checks.delete(id);
  }

  async #run(id: string, plan: ProbePlan, check: Check): Promise<void> {
    const { signal } = check.over;
    while (!signal.aborted) {
      try {
        check.state = 'waiting';
        await this.#untilNext(id, plan, signal);
        check.state = 'probing';
        const result = await this.#probe(id, plan, signal);
        if (!signal.aborted) this.deps.report(id, check.startedAt, result);
      } catch (error) {
        // A failed probe is a result. This is for other faults, which must not end the probing.
        if (signal.aborted) return;
        this.deps.log.error({ err: error, container: id }, 'health check failed');
        // Nothing was reported, so the next probe is due at once: the pause keeps a lasting fault from keeping the
        // daemon busy.
        await sleep(plan.intervalMs, undefined, { signal, ref: false }).catch(() => undefined);
      }
    }
  }

  #untilNext(id: string, plan: ProbePlan, signal: AbortSignal): Promise<unknown> {
    const container = this.deps.container(id);
    const delayMs = container ? probeDelayMs(plan, container.state, Date.now()) : 0;
    const wait = (): Promise<unknown> => sleep(delayMs, undefined, { signal, ref: false });
    return inTime('wait', runEffect('engine.health.waiting', wait), delayMs);
  }

  /** Runs a probe within its timeout. An abort ends its process, without waiting for it. */
  async #probe(id: string, plan: ProbePlan, signal: AbortSignal): Promise<ProbeResult> {
    const container = this.deps.container(id);
    if (!container) throw new Error(`container ${id} is gone`);
    const over = new AbortController();
    const probe = (): Promise<ProbeResult> => this.deps.probe(container, plan, AbortSignal.any([signal, over.signal]));
    try {
      return await inTime('probe', runEffect('engine.health.probing', probe), plan.timeoutMs);
    } finally {
      over.abort();
    }
  }
}
