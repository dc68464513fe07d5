/**
 * Turns what happens in the daemon into metrics. Until there is somebody to read them, an address that serves them or a
 * first request for `/metrics`, nothing of it is loaded or counted.
 */
import type { ContainerRecord } from '../actors/container/container.record.js';
import type { NetworkAction } from '../actors/container/deps.js';
import { EngineError, isEngineError } from '../errors/engine-error.js';
import { createFront, type Front } from '../http/front.js';
import type { Listener } from '../http/listener.js';
import type { RequestObserver } from '../http/request-observer.js';
import { metricsRoutes, type MetricsSource } from '../http/routes/metrics.js';
import type { LogObserver } from '../logs/observer.js';
import type { EventType } from '../ports/events.js';
import type { KeptSockets } from '../ports/kept-sockets.js';
import type { Logger } from '../ports/logger.js';
import type { EngineIdentity, Metrics } from '../telemetry/metrics.js';
import type { UsageSource } from './container-metrics.js';
import { PRODUCT_VERSION } from '../version.js';

export interface EngineMetricsDeps {
  /** `host:port`, or '' for none. */
  readonly address: string;
  readonly cpus: number;
  readonly memoryBytes: number;
  /** These figures describe the daemon and its host. */
  readonly identity: EngineIdentity;
  readonly log: Logger;
  readonly keptSockets: KeptSockets;
  /** These two are asked when metrics are read. */
  containers(): readonly ContainerRecord[];
  eventSubscribers(): number;
}

export interface EngineMetrics extends MetricsSource {
  readonly requests: RequestObserver;
  readonly pulls: { received(bytes: number): void; failed(error: unknown): void };
  /** From now on single containers have metrics, too. */
  readUsages(source: UsageSource): void;
  event(type: EventType, action: string): void;
  /** Runs an action on networks; counts its duration when it succeeds. */
  counted<T>(action: NetworkAction, run: () => Promise<T>): Promise<T>;
  healthCheck(isPassed: boolean): void;
  /** The process of a health check has started. */
  healthCheckStarted(seconds: number): void;
  /** A client or a restart policy has started a container. */
  containerStarted(seconds: number): void;
  /** Writes what happens to the log of one container into the daemon's log, and counts it. */
  logObserver(container: string): LogObserver;
  /**
   * Serves the metrics if there is an address. @throws EngineError that names the option when the address cannot be
   * used.
   */
  listen(): Promise<void>;
  close(limitMs: number): Promise<void>;
}

export async function createEngineMetrics(deps: EngineMetricsDeps): Promise<EngineMetrics> {
  let metrics: Metrics | undefined;
  let loading: Promise<Metrics> | undefined;
  const load = (): Promise<Metrics> => (loading ??= loadMetrics(deps));
  if (deps.address !== '') metrics = await load();
  let usages: UsageSource | undefined;
  let listener: Listener | undefined;
  const source: MetricsSource = {
    async read() {
      metrics ??= await load();
      const { containerMetrics } = await import('./container-metrics.js');
      const ofContainers = usages === undefined ? '' : await containerMetrics(deps.containers(), usages);
      return { contentType: metrics.contentType, text: (await metrics.text()) + ofContainers };
    },
  };
  return {
    ...source,
    requests: {
      answered: (method, pattern, status, startedMs, isWhole) =>
        metrics?.httpRequest(method, pattern, status, (performance.now() - startedMs) / 1000, isWhole),
      refused: (status) => metrics?.httpRefused(status),
    },
    pulls: {
      received: (bytes) => metrics?.pullReceived(bytes),
      failed: (error) => metrics?.pullEnded(isEngineError(error, 'cancelled') ? 'cancelled' : 'failed'),
    },
    readUsages: (from) => void (usages = from),
    event(type, action) {
      metrics?.event();
      if (type === 'image' && action === 'pull') metrics?.pullEnded('ok');
    },
    async counted(action, run) {
      const start = performance.now();
      const result = await run();
      metrics?.networkAction(action, (performance.now() - start) / 1000);
      return result;
    },
    healthCheck: (isPassed) => metrics?.healthCheck(isPassed),
    healthCheckStarted: (seconds) => metrics?.healthCheckStarted(seconds),
    containerStarted: (seconds) => metrics?.containerStarted(seconds),
    logObserver: (container) => logObserver(container, deps.log, () => metrics),
    async listen() {
      if (deps.address === '') return;
      listener = await listenAt(
        deps.address,
        createFront({
          routes: metricsRoutes(source),
          product: { version: PRODUCT_VERSION, experimental: true },
          logger: deps.log,
          keptSockets: deps.keptSockets,
        }),
      );
      deps.log.info({ address: listener.address }, 'metrics are served');
    },
    close: async (limitMs) => listener?.close(limitMs),
  };
}

async function loadMetrics(deps: EngineMetricsDeps): Promise<Metrics> {
  const { createMetrics } = await import('../telemetry/metrics.js');
  const { cpus, memoryBytes, identity } = deps;
  return createMetrics({
    identity,
    cpus,
    memoryBytes,
    containerStates: () => countStates(deps.containers()),
    eventSubscribers: () => deps.eventSubscribers(),
  });
}

function countStates(records: readonly ContainerRecord[]): Record<'running' | 'paused' | 'stopped', number> {
  const counts = { running: 0, paused: 0, stopped: 0 };
  for (const { state } of records)
    counts[state.status === 'running' || state.status === 'paused' ? state.status : 'stopped']++;
  return counts;
}

async function listenAt(address: string, front: Front): Promise<Listener> {
  const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  try {
    return await front.listen({ kind: 'tcp', host, port: Number(port) });
  } catch (error) {
    throw isEngineError(error)
      ? new EngineError(error.kind, `metrics-addr ${address}: ${error.message}`, { cause: error })
      : error;
  }
}

function logObserver(container: string, log: Logger, metrics: () => Metrics | undefined): LogObserver {
  return {
    written: (bytes) => metrics()?.logWritten(bytes),
    dropped(lines) {
      metrics()?.logDropped(lines);
      log.warn({ container, lines }, 'log lines dropped');
    },
    damaged(bytes) {
      metrics()?.logDamaged(bytes);
      log.warn({ container, bytes }, 'damaged log records left out');
    },
    readFailed(error) {
      metrics()?.logReadFailed();
      log.error({ err: error, container }, 'the log cannot be read');
    },
    failed(error, what) {
      metrics()?.logFailed();
      log.error({ err: error, container }, what);
    },
  };
}
