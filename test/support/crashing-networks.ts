/** A process that attaches sandboxes, tells its parent, and waits to be killed. */
import { attachSandbox, networksOf, type NetworkPlan } from './host-networks.js';
import { silentLog } from './silent-log.js';
import type { PublishedPort } from '../../src/ports/network.js';

const { plan, ports } = JSON.parse(process.argv[2] ?? '') as { plan: NetworkPlan; ports: PublishedPort[][] };
const identities = { value: undefined };
const networks = networksOf(plan, silentLog, identities);
await networks.start();
const sandboxes = [];
for (const list of ports) sandboxes.push(await attachSandbox(networks, list));
process.send?.({ sandboxes, identities: identities.value });
setInterval(() => undefined, 60_000);
