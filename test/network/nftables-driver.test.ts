/** The network driver on nftables: the same tests as on iptables. */
import { testNftables } from '../support/tested-backend.js';

testNftables();
await import('./network.test.js');
