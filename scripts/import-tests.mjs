/**
 * node scripts/import-tests.mjs FILE...: runs compiled test files one after the other in this process. A process for
 * each would take longer to load than the tests of most files beside the sources run. Each file has a suite of its own,
 * so its hooks concern no other one; what it changes in the process itself, such as a clock, it must put back.
 */
import { describe } from 'node:test';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from './ensure-packages.mjs';

for (const file of process.argv.slice(2)) {
  describe(relative(join(ROOT, 'dist'), file), async () => {
    await import(pathToFileURL(file).href);
  });
}
