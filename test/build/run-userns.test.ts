/** RUN where all files have remapped owners: what a step is given belongs to the root of its container. */
import { join } from 'node:path';
import { test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { buildxPlugins } from '../support/dockerd.js';
import { remappedApart } from '../support/remapped-engine.js';
import { assertStepOwners } from '../support/step-owners.js';

const remapped = remappedApart();
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

test('files of mounts have owners of the container, and networks are its own', { skip }, async () => {
  await assertStepOwners(new Buildx(join(remapped.temp, 'work'), remapped.engine.host));
});
