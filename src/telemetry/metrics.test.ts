import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createMetrics } from './metrics.js';

test('what was counted is in the text, states are asked when it is read', async () => {
  const identity = {
    version: '1.2.3',
    commit: 'abc',
    architecture: 'x86_64',
    graphdriver: 'overlay2',
    kernel: '6',
    os: 'Debian',
    os_type: 'linux',
    os_version: '12',
    daemon_id: 'id',
  };
  const states = { running: 0, paused: 0, stopped: 0 };
  const metrics = createMetrics({
    identity,
    cpus: 2,
    memoryBytes: 4096,
    containerStates: () => states,
    eventSubscribers: () => 7,
  });
  metrics.httpRequest('GET', '/containers/{name}/json', 200, 0.002, true);
  metrics.httpRequest('GET', '/containers/{name}/json', 200, 20, true);
  metrics.event();
  metrics.healthCheckStarted(0.03);
  metrics.httpRequest('GET', '/info', 200, 0.02, true);
  metrics.containerStarted(0.5);
  metrics.logWritten(100);
  metrics.logWritten(23);
  metrics.logDropped(4);
  metrics.logDamaged(5);
  metrics.logFailed();
  metrics.pullReceived(6);
  states.running = 3;
  const lines = (await metrics.text()).split('\n');
  for (const line of [
    'engine_daemon_engine_info{version="1.2.3",commit="abc",architecture="x86_64",graphdriver="overlay2",' +
      'kernel="6",os="Debian",os_type="linux",os_version="12",daemon_id="id"} 1',
    'engine_daemon_engine_cpus_cpus 2',
    'engine_daemon_engine_memory_bytes 4096',
    'engine_daemon_container_states_containers{state="running"} 3',
    'engine_daemon_container_states_containers{state="stopped"} 0',
    'engine_daemon_events_subscribers_total 7',
    'engine_daemon_events_total 1',
    'engine_daemon_health_check_start_duration_seconds_bucket{le="0.05"} 1',
    'engine_daemon_host_info_functions_seconds_count{function="system_info"} 1',
    'engine_daemon_host_info_functions_seconds_count{function="system_version"} 0',
    'engine_daemon_container_actions_seconds_count{action="create"} 0',
    'engine_daemon_network_actions_seconds_count{action="connect"} 0',
    'engine_pulls_total{result="ok"} 0',
    'engine_http_request_duration_seconds_bucket{le="0.0025",method="GET",route="/containers/{name}/json",' +
      'code="200"} 1',
    'engine_http_request_duration_seconds_count{method="GET",route="/containers/{name}/json",code="200"} 2',
    'engine_log_written_bytes_total 123',
    'engine_log_dropped_lines_total 4',
    'engine_log_damaged_bytes_total 5',
    'logger_log_write_operations_failed_total 1',
    'engine_pull_received_bytes_total 6',
  ]) {
    assert.ok(lines.includes(line), line);
  }
  assert.ok(lines.some((line) => line.startsWith('nodejs_eventloop_lag_p99_seconds ')));
  assert.ok(lines.some((line) => line.startsWith('process_resident_memory_bytes ')));
  assert.match(metrics.contentType, /^text\/plain; version=0\.0\.4/);
});
