/** The contract of storage drivers, kept by the driver overlay2. */
import { storageDriver } from '../../src/storage/drivers/index.js';
import { testDriver } from '../support/driver-contract/contract.js';

testDriver(storageDriver('overlay2'));
