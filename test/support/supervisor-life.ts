/**
 * One life of a daemon's supervisor, to be killed: starts a container that prints numbers, and says what it started.
 * With `creating` as its second argument it says so when it begins to create the container.
 */
import { SupervisorHarness, untilText } from './supervisor-harness.js';

const [dir, mode] = process.argv.slice(2);
const harness = new SupervisorHarness(dir);
const supervisor = harness.supervisor();
await supervisor.start();
if (mode === 'creating') {
  const creating = harness.create(supervisor, { args: ['true'] });
  process.send?.({ containerd: supervisor.pid, id: harness.ids.at(-1) });
  await creating;
}
const script = 'i=0; while true; do i=$((i+1)); echo "line $i"; sleep 0.02; done';
const container = await harness.start(supervisor, { args: ['sh', '-c', script], stdin: true });
await untilText(container.stdout, container.io.stdout, 'line 3\n');
process.send?.({ containerd: supervisor.pid, id: container.id, output: container.stdout() });
