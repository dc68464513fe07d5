/**
 * The unmodified docker-compose of Debian, whose program of Python is loaded once for all commands of a test: loading
 * takes half a second of processor time, more than most commands do. Each command is a process of its own. From trixie
 * on it is a program of Go, which is started as it is.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

/** A command that hangs is ended after this time, with all others. */
const PATIENCE_MS = 120_000;
/** Reads the words of a command from each line, and answers with its exit code and all that it has printed. */
const PROGRAM = `
import json, os, sys, tempfile
from importlib.metadata import entry_points
entries = entry_points(group='console_scripts', name='docker-compose')
main = next(iter(entries)).load() if entries else lambda: os.execvp('docker-compose', sys.argv)
for line in sys.stdin:
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            sys.argv = ['docker-compose', *json.loads(line)]
            sys.exit(main())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        printed.seek(0)
        print(json.dumps([status, printed.read().decode()]), flush=True)
`;

export class DebianCompose {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answers: AsyncIterator<string, undefined>;

  constructor(options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv }) {
    // The interpreter of the package, whatever is on PATH.
    this.#process = spawn('/usr/bin/python3', ['-c', PROGRAM], { ...options, stdio: ['pipe', 'pipe', 'inherit'] });
    this.#answers = createInterface(this.#process.stdout)[Symbol.asyncIterator]();
  }

  /** Throws with all that the command printed when it fails. One command at a time. */
  async run(...args: readonly string[]): Promise<string> {
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), PATIENCE_MS);
    try {
      this.#process.stdin.write(`${JSON.stringify(args)}\n`);
      const { value } = await this.#answers.next();
      assert.ok(value, `docker-compose ${args.join(' ')} has not ended, or was not loaded`);
      const [status, printed] = JSON.parse(value) as [number, string];
      assert.equal(status, 0, `docker-compose ${args.join(' ')}: ${printed}`);
      return printed;
    } finally {
      clearTimeout(timer);
    }
  }

  async stop(): Promise<void> {
    const ended = once(this.#process, 'exit');
    this.#process.stdin.end();
    await ended;
  }
}
