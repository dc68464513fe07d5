/** The contract of storage drivers, kept by the driver fuse-overlayfs. */
import { storageDriver } from '../../src/storage/drivers/index.js';
import { testDriver } from '../support/driver-contract/contract.js';

testDriver(storageDriver('fuse-overlayfs'), { cannot: ['hide circles of links', 'make names of whiteouts'] });
