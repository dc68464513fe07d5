/**
 * One life of a daemon's supervisor, to be killed: starts a container that prints numbers, and says what it started.
 */
import { SupervisorHarness, untilText } from './supervisor-harness.js';

const harness = new SupervisorHarness(process.argv[2]);
const supervisor = harness.supervisor();
await supervisor.start();
const script = 'i=0; while true; do i=$((i+1)); echo "line $i"; sleep 0.02; done';
const container = await harness.start(supervisor, { args: ['sh', '-c', script], stdin: true });
await untilText(container.stdout, container.io.stdout, 'line 3\n');
process.send?.({ containerd: supervisor.pid, id: container.id, output: container.stdout() });
