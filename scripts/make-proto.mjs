/**
 * Makes the types of the protocol files. It fetches both programs that do this: they want a newer Node than the daemon
 * and are needed by nobody else. The result is checked in. Plain Node.
 */
import { run } from './ensure-packages.mjs';

const PROGRAMS = ['-p', '@bufbuild/buf@1.75.0', '-p', '@bufbuild/protoc-gen-es@2.17.0'];

for (const folder of ['src/ports/proto', 'src/supervisor/proto', 'src/http/buildkit/proto'])
  run('npx', ['--yes', ...PROGRAMS, 'buf', 'generate', folder, '--template', `${folder}/buf.gen.yaml`]);
