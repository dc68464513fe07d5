import assert from 'node:assert/strict';
import { test } from 'node:test';
import { internal } from '../../../errors/engine-error.js';
import { execError, startError } from './start-error.js';

test('what runtimes say of a command that cannot be started has the same exit code for each of them', () => {
  for (const [text, ofContainer, ofExec] of [
    ['exec: "x": executable file not found in $PATH', 127, 127],
    ['exec: "/x": stat /x: no such file or directory', 127, 127],
    ['executable file `x` not found in $PATH: No such file or directory', 127, 127],
    ['exec: "/etc": is a directory: permission denied', 126, 126],
    ['open executable: Operation not permitted', 126, 126],
    ['the path `/etc` is not a regular file: Operation not permitted', 126, 126],
    ['the path `/etc/passwd` exists but it is not executable: Operation not permitted', 126, 126],
    ['chdir to `/etc/passwd`: Not a directory', 126, 126],
    ['exec: "/xx": stat /xx: file name too long', 126, 126],
    ['exec: "/loop": stat /loop: too many levels of symbolic links', 126, 126],
    ['something else', 128, 126],
  ] as const) {
    const error = internal(`OCI runtime failed: ${text}`, { details: { runtimeError: true } });
    const codes = [startError(error), execError(error)].map(({ details }) => details['exitCode']);
    assert.deepEqual(codes, [ofContainer, ofExec], text);
  }
});
