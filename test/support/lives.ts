/**
 * For the tests of container commands: an engine for the file, containers that are gone after each test, and the few
 * steps that all of them take. Works against dockerd, too.
 */
import assert from 'node:assert/strict';
import { afterEach } from 'node:test';
import { removeContainers } from './container-removal.js';
import { FileEngine } from './file-engine.js';
import { call, callJson, type Reply } from './http.js';
import { waitFor } from './wait.js';

export interface Inspection {
  readonly Id: string;
  readonly Name: string;
  readonly RestartCount: number;
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly Paused: boolean;
    readonly Restarting: boolean;
    readonly OOMKilled: boolean;
    readonly Dead: boolean;
    readonly Pid: number;
    readonly ExitCode: number;
    readonly Error: string;
    readonly StartedAt: string;
    readonly FinishedAt: string;
  };
  readonly HostConfig: Readonly<Record<string, unknown>>;
}

interface Event {
  readonly Type: string;
  readonly Action: string;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** Handles TERM and USR1, with exit codes of their own, and says when it does. */
export const TRAP = 'trap "exit 7" TERM; trap "exit 8" USR1; echo ready; sleep 1000 & wait';

export class Lives extends FileEngine {
  constructor() {
    super();
    afterEach(() => removeContainers(this.engine));
  }

  /** Starts a container in the background. */
  runDetached(name: string, command: string, ...flags: string[]): Promise<string> {
    return this.ok('run', '-d', '--name', name, ...flags, this.image, 'sh', '-c', command);
  }

  /** A container that exits with 7 at TERM and with 8 at USR1. Resolves when it does. */
  async runTrapping(name: string, ...flags: string[]): Promise<string> {
    const id = await this.runDetached(name, TRAP, ...flags);
    await this.ready(name);
    return id;
  }

  /** Resolves when a container with the traps has said so many times that they are set. */
  async ready(name: string, times = 1): Promise<void> {
    const path = `/containers/${name}/logs?stdout=1`;
    await waitFor(
      'the traps',
      async () => (await call(this.engine.socketPath, 'GET', path)).text.split('ready\n').length > times,
    );
  }

  inspect(name: string): Promise<Inspection> {
    return callJson<Inspection>(this.engine.socketPath, 'GET', `/containers/${name}/json`);
  }

  until(name: string, what: string, probe: (found: Inspection) => boolean): Promise<Inspection> {
    return waitFor(`${name}: ${what}`, async () => {
      const found = await this.inspect(name);
      return probe(found) && found;
    });
  }

  post(path: string, json?: unknown): Promise<Reply> {
    return call(this.engine.socketPath, 'POST', path, json === undefined ? {} : { json });
  }

  /** Returns what happened to a container since a time in seconds, as `action attribute=value`, in order. */
  async events(since: number, id: string, ...attributes: string[]): Promise<string[]> {
    const text = (
      await call(
        this.engine.socketPath,
        'GET',
        `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}` +
          `&filters=${encodeURIComponent(JSON.stringify({ container: [id] }))}`,
      )
    ).text;
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Event)
      .filter(({ Type }) => Type === 'container')
      .map(({ Action, Actor }) =>
        [
          Action,
          ...attributes.flatMap((name) =>
            Actor.Attributes[name] === undefined ? [] : [`${name}=${Actor.Attributes[name]}`],
          ),
        ].join(' '),
      );
  }
}

export async function refused(reply: Promise<Reply>, status: number, message: RegExp): Promise<void> {
  const { status: got, text } = await reply;
  assert.equal(got, status, text);
  assert.match((JSON.parse(text) as { message: string }).message, message);
}

/** A time to ask for events since, in seconds. */
export function now(): number {
  return Math.floor(Date.now() / 1000) - 1;
}
