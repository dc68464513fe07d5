/**
 * The daemon's metrics, in the text format that the metrics endpoint serves. Where the known engine has a metric of the
 * same meaning, the name is the same, so that existing dashboards work.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

/** Facts about the daemon and its host, which are labels of one series. */
export interface EngineIdentity {
  readonly version: string;
  readonly commit: string;
  readonly architecture: string;
  readonly graphdriver: string;
  readonly kernel: string;
  readonly os: string;
  readonly os_type: string;
  readonly os_version: string;
  readonly daemon_id: string;
}

export interface MetricsOptions {
  readonly identity: EngineIdentity;
  /** Number of the host's processors and bytes of its memory. */
  readonly cpus: number;
  readonly memoryBytes: number;
  /** How many containers are in each state; asked when metrics are read. */
  readonly containerStates: () => Readonly<Record<'running' | 'paused' | 'stopped', number>>;
  /** How many subscribe to events; asked when metrics are read. */
  readonly eventSubscribers: () => number;
}

const PULL_RESULTS = ['ok', 'failed', 'cancelled'] as const;
type PullResult = (typeof PULL_RESULTS)[number];

export interface Metrics {
  /** A reply is complete. `route` is the pattern of the path, never the path: the number of series must be bounded. */
  httpRequest(method: string, route: string, status: number, seconds: number, isWhole: boolean): void;
  /** A request got no route. */
  httpRefused(status: number): void;
  event(): void;
  networkAction(action: string, seconds: number): void;
  healthCheck(isPassed: boolean): void;
  /** The process of a health check has started. */
  healthCheckStarted(seconds: number): void;
  pullEnded(result: PullResult): void;
  /** A container was started, by a client or by a policy. */
  containerStarted(seconds: number): void;
  logWritten(bytes: number): void;
  logDropped(lines: number): void;
  logDamaged(bytes: number): void;
  logFailed(): void;
  logReadFailed(): void;
  /** Bytes of layers that came from a registry. */
  pullReceived(bytes: number): void;
  /** Content type of `text`. */
  readonly contentType: string;
  text(): Promise<string>;
}

const ACTION_BUCKETS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60];
const HTTP_BUCKETS_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const EVENT_LOOP_PRECISION_MS = 10;
/** The known engine counts these routes under these names of actions. */
const ACTIONS: Readonly<Record<string, readonly [object: 'container' | 'image' | 'network', action: string]>> = {
  'POST /containers/create': ['container', 'create'],
  'DELETE /containers/{name...}': ['container', 'delete'],
  'GET /containers/{name...}/changes': ['container', 'changes'],
  'POST /commit': ['container', 'commit'],
  'POST /images/create': ['image', 'pull'],
  'DELETE /images/{name...}': ['image', 'delete'],
  'POST /networks/create': ['network', 'create'],
  'DELETE /networks/{name...}': ['network', 'delete'],
};

/** The known engine counts these routes as functions that ask about the host. */
const HOST_FUNCTIONS: ReadonlyMap<string, string> = new Map([
  ['GET /info', 'system_info'],
  ['GET /version', 'system_version'],
]);

/** These actions belong to no single route: containers join and leave networks, and policies start containers, too. */
const NETWORK_ACTIONS = ['allocate', 'connect', 'release'];
const START = { action: 'start' };

/** Makes the metrics, with those of the process and of Node (event loop delay, heap, garbage collection) among them. */
export function createMetrics(options: MetricsOptions): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS });
  registerFigures(registry, options);
  registerContainerStates(registry, options);
  return {
    ...actionMetrics(registry),
    ...eventMetrics(registry),
    ...pullMetrics(registry),
    ...logMetrics(registry),
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}

/** Figures that are read when somebody asks for the metrics. */
function registerFigures(registry: Registry, { identity, cpus, memoryBytes, eventSubscribers }: MetricsOptions): void {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => number): void => {
    const metric: Gauge = new Gauge({ name, help, registers, collect: () => metric.set(read()) });
  };
  new Gauge({
    name: 'engine_daemon_engine_info',
    help: 'The daemon',
    registers,
    labelNames: Object.keys(identity),
  }).set({ ...identity }, 1);
  gauge('engine_daemon_engine_cpus_cpus', 'Processors of the host', () => cpus);
  gauge('engine_daemon_engine_memory_bytes', 'Memory of the host', () => memoryBytes);
  gauge('engine_daemon_events_subscribers_total', 'Current subscribers to events', () => eventSubscribers());
}

function registerContainerStates(registry: Registry, { containerStates }: MetricsOptions): void {
  const states = new Gauge({
    name: 'engine_daemon_container_states_containers',
    help: 'Containers by state',
    registers: [registry],
    labelNames: ['state'],
    collect: () => {
      for (const [state, count] of Object.entries(containerStates())) states.set({ state }, count);
    },
  });
}

type ActionMetrics = Pick<Metrics, 'httpRequest' | 'httpRefused' | 'networkAction' | 'containerStarted'>;

/** Requests, and the actions that they or a restart policy began. */
function actionMetrics(registry: Registry): ActionMetrics {
  const registers = [registry];
  const requests = new Histogram({
    name: 'engine_http_request_duration_seconds',
    help: 'Time from a request to the end of its reply',
    registers,
    labelNames: ['method', 'route', 'code'],
    buckets: HTTP_BUCKETS_SECONDS,
  });
  const refused = new Counter({
    name: 'engine_http_requests_refused_total',
    help: 'Requests that no route was asked to serve',
    registers,
    labelNames: ['code'],
  });
  const actions = (object: 'container' | 'image' | 'network'): Histogram =>
    new Histogram({
      name: `engine_daemon_${object}_actions_seconds`,
      help: `Time that each action on a ${object} takes when it succeeds`,
      registers,
      labelNames: ['action'],
      buckets: ACTION_BUCKETS_SECONDS,
    });
  const actionsOf = { container: actions('container'), image: actions('image'), network: actions('network') };
  const hostFunctions = new Histogram({
    name: 'engine_daemon_host_info_functions_seconds',
    help: 'Time that answers about the host take',
    registers,
    labelNames: ['function'],
    buckets: ACTION_BUCKETS_SECONDS,
  });
  for (const name of HOST_FUNCTIONS.values()) hostFunctions.zero({ function: name });
  // The series exist from the start, because rates and alerts need them before anything has happened.
  for (const [object, action] of Object.values(ACTIONS)) actionsOf[object].zero({ action });
  for (const action of NETWORK_ACTIONS) actionsOf.network.zero({ action });
  actionsOf.container.zero(START);
  return {
    httpRequest(method, route, status, seconds, isWhole) {
      requests.observe({ method, route, code: status }, seconds);
      if (status >= 300 || !isWhole) return;
      const action = ACTIONS[`${method} ${route}`];
      if (action) actionsOf[action[0]].observe({ action: action[1] }, seconds);
      const hostFunction = HOST_FUNCTIONS.get(`${method} ${route}`);
      if (hostFunction !== undefined) hostFunctions.observe({ function: hostFunction }, seconds);
    },
    httpRefused: (status) => refused.inc({ code: status }),
    networkAction: (action, seconds) => actionsOf.network.observe({ action }, seconds),
    containerStarted: (seconds) => actionsOf.container.observe(START, seconds),
  };
}

function eventMetrics(registry: Registry): Pick<Metrics, 'event' | 'healthCheck' | 'healthCheckStarted'> {
  const healthChecks = counter(registry, 'engine_daemon_health_checks_total', 'Health checks that ran');
  const failed = counter(registry, 'engine_daemon_health_checks_failed_total', 'Health checks that failed');
  const events = counter(registry, 'engine_daemon_events_total', 'Events');
  const starts = new Histogram({
    name: 'engine_daemon_health_check_start_duration_seconds',
    help: 'Time that the start of the process of a health check takes',
    registers: [registry],
    buckets: ACTION_BUCKETS_SECONDS,
  });
  return {
    event: () => events.inc(),
    healthCheck(isPassed) {
      healthChecks.inc();
      if (!isPassed) failed.inc();
    },
    healthCheckStarted: (seconds) => starts.observe(seconds),
  };
}

function pullMetrics(registry: Registry): Pick<Metrics, 'pullEnded' | 'pullReceived'> {
  const pulls = new Counter({
    name: 'engine_pulls_total',
    help: 'Pulls of images that ended',
    registers: [registry],
    labelNames: ['result'],
  });
  for (const result of PULL_RESULTS) pulls.inc({ result }, 0);
  const received = counter(
    registry,
    'engine_pull_received_bytes_total',
    'Bytes of complete layers received from registries',
  );
  return { pullEnded: (result) => pulls.inc({ result }), pullReceived: (bytes) => received.inc(bytes) };
}

type LogMetrics = Pick<Metrics, 'logWritten' | 'logDropped' | 'logDamaged' | 'logFailed' | 'logReadFailed'>;

function logMetrics(registry: Registry): LogMetrics {
  const written = counter(registry, 'engine_log_written_bytes_total', 'Bytes written to the logs of containers');
  const dropped = counter(registry, 'engine_log_dropped_lines_total', 'Lines that were not logged for want of room');
  const damaged = counter(registry, 'engine_log_damaged_bytes_total', 'Bytes of logs that readers had to leave out');
  const failed = counter(registry, 'logger_log_write_operations_failed_total', 'Operations on log files that failed');
  const readFailed = counter(registry, 'logger_log_read_operations_failed_total', 'Readings of logs that failed');
  return {
    logWritten: (bytes) => written.inc(bytes),
    logDropped: (lines) => dropped.inc(lines),
    logDamaged: (bytes) => damaged.inc(bytes),
    logFailed: () => failed.inc(),
    logReadFailed: () => readFailed.inc(),
  };
}

function counter(registry: Registry, name: string, help: string): Counter {
  return new Counter({ name, help, registers: [registry] });
}
