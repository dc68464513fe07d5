/**
 * Processor time of an engine with its supervisor, shims and runtimes, which end and are nobody's children meanwhile:
 * of the control group that it is started in. Unlike time, it hardly grows when others use the machine.
 */
import { mkdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineKind } from '../test/support/engine.js';
import { waitFor } from '../test/support/wait.js';

/** Enters the group, then becomes the program. */
const ENTER = 'echo 0 > "$0/cgroup.procs" && exec "$@"';
const REMOVAL_MS = 10_000;
const LOOK_MS = 200;
/** Work that an engine puts off may begin a second after its reply, as the removal of files does. */
const QUIET_LOOKS = 6;
/** An engine with containers that do something never rests. */
const MAX_LOOKS = 100;
/** An engine that uses less than this share of a processor rests. */
const REST = 0.05;

export interface ProcessorTime {
  /** `kind`, started in the group. */
  readonly kind: EngineKind;
  /** Milliseconds of all processors so far. */
  read(): number;
  /** Resolves when the engine rests: what it does after a reply, as removing files, would disturb the next sample. */
  rest(): Promise<void>;
  /** Removes the group, when the engine has ended. */
  remove(): Promise<void>;
}

/** Every group of version 2 counts the time, also beside hierarchies of version 1. */
function unifiedRoot(): string {
  const mount = readFileSync('/proc/mounts', 'latin1')
    .split('\n')
    .find((line) => line.split(' ')[2] === 'cgroup2');
  const path = mount?.split(' ')[1];
  if (path === undefined) throw new Error('the bench counts processor time in a cgroup2 file system: mount one');
  return path;
}

/** Makes a group; one that a killed bench with the same number left, empty, has counted other work and is removed. */
export function makeGroup(group: string): void {
  try {
    mkdirSync(group);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    rmdirSync(group);
    mkdirSync(group);
  }
}

/** Milliseconds that a process has computed. */
export function processMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
    .replace(/^.*\) /s, '')
    .split(' ');
  // utime and stime, in ticks of a hundredth of a second (proc(5)).
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

let made = 0;

export function countProcessorTime(kind: EngineKind): ProcessorTime {
  const group = join(unifiedRoot(), `engined-bench-${process.pid}-${(made += 1)}`);
  makeGroup(group);
  const read = (): number =>
    Number(/^usage_usec (\d+)$/m.exec(readFileSync(join(group, 'cpu.stat'), 'latin1'))?.[1]) / 1000;
  return {
    kind: { ...kind, command: (...places) => ['/bin/sh', '-c', ENTER, group, ...kind.command(...places)] },
    read,
    rest: async () => {
      for (let looks = 0, quiet = 0; looks < MAX_LOOKS && quiet < QUIET_LOOKS; looks++) {
        const before = read();
        await sleep(LOOK_MS);
        quiet = read() - before < LOOK_MS * REST ? quiet + 1 : 0;
      }
    },
    remove: async () => void (await waitFor(`the processes in ${group} to end`, () => isRemoved(group), REMOVAL_MS)),
  };
}

/** The list of a group's processes is empty a moment before the kernel lets the group go, so only the removal tells. */
function isRemoved(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EBUSY') return false;
    throw error;
  }
}
