/** The contract of storage drivers, kept by a driver of plain directories: the seam is one. */
import { directoryDriver } from '../support/directory-driver.js';
import { testDriver } from '../support/driver-contract/contract.js';

// Each layer is a copy of all below it.
testDriver(directoryDriver, { sizes: { depth: 20, chains: 4 } });
