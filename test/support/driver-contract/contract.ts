/**
 * The contract of storage drivers as tests: a test file calls this with a row of the table, and all of it must pass.
 */
import { after, describe, it } from 'node:test';
import type { DriverRow } from '../../../src/storage/drivers/driver.js';
import { FILE_TESTS } from './files.js';
import { DriverHarness, type DriverTests, type TestPlace } from './harness.js';
import { KILL_TESTS } from './kills.js';
import { LIFE_TESTS } from './life.js';
import { SEALING_TESTS } from './sealing.js';

export const ALL_TESTS: DriverTests = { ...FILE_TESTS, ...SEALING_TESTS, ...LIFE_TESTS, ...KILL_TESTS };

export function testDriver(driver: DriverRow, place: TestPlace = {}, tests = ALL_TESTS): void {
  describe(`storage driver ${driver.shownName ?? driver.name}`, () => {
    const harness = new DriverHarness(driver, place.directory, place);
    after(() => harness.close());
    for (const [name, run] of Object.entries(tests)) it(name, () => run(harness));
  });
}
