/**
 * node scripts/import-tests.mjs FILE...: runs compiled test files one after the other in this process. A process for
 * each would take longer to load than the tests of most files beside the sources run. Each file has a suite of its own,
 * so its hooks concern no other one; what it changes in the process itself, such as a clock, it must put back. Files of
 * daemons may share one (TEST_SHARES_ENGINE), whose end is the last test.
 */
import { describe, test } from 'node:test';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from './ensure-packages.mjs';

for (const file of process.argv.slice(2)) {
  describe(relative(join(ROOT, 'dist'), file), async () => {
    await import(pathToFileURL(file).href);
  });
}

// The module is loaded by those files alone that have daemons.
if (process.env.TEST_SHARES_ENGINE !== undefined) {
  const { closeShared } = await import(pathToFileURL(join(ROOT, 'dist/test/support/shared-engine.js')).href);
  test('the daemon of these files ends and leaves nothing behind', closeShared);
}
