/**
 * `npm run bench -- --floors`: how far saving, loading, importing and copying are from what the disk, the socket and
 * sha256 take on this machine for the same bytes. A floor is the processor time of its steps, each done by itself.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, lstatSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { Engine } from '../test/support/engine.js';
import { copy } from './copy.js';
import { exportBigImage, importTar } from './import.js';
import { median, type Measure, type Setting } from './measure.js';
import { take, type Contender, type MetricResult } from './sampling.js';
import { saveLoad } from './save-load.js';

const ROUNDS = 5;
const PIECE = Buffer.alloc(1 << 20, 'floor');
const HALF_GB = 500_000_000;
const GB = 1_000_000_000;

/** Milliseconds that passed, and those of processors. */
interface Cost {
  readonly time: number;
  readonly processor: number;
}

/** The steps that an engine has to do, and those of its client, by their names; a socket has two ends. */
interface Action {
  readonly metric: string;
  readonly daemon: readonly [name: string, share: number][];
  readonly client: readonly [name: string, share: number][];
}

const SHA = 'sha256 of 500 MB';
const READ_TREE = 'read the files of the image';
const WRITE_TREE = 'write the files of the image';
const READ = 'read a file of 1 GB';
const WRITE = 'write a file of 1 GB';
const SOCKET = 'send 1 GB through a unix socket';

const ACTIONS: readonly Action[] = [
  {
    metric: 'save 500 MB',
    daemon: [
      [READ_TREE, 1],
      [SHA, 1],
      [SOCKET, 0.25],
    ],
    client: [
      [SOCKET, 0.25],
      [WRITE, 0.5],
    ],
  },
  ...['load 500 MB', 'import 500 MB'].map((metric): Action => ({
    metric,
    daemon: [
      [SOCKET, 0.25],
      [SHA, 1],
      [WRITE_TREE, 1],
    ],
    client: [
      [READ, 0.5],
      [SOCKET, 0.25],
    ],
  })),
  {
    metric: 'cp 1 GB into a container',
    daemon: [
      [SOCKET, 0.5],
      [WRITE, 1],
    ],
    client: [[SOCKET, 0.5]],
  },
  {
    metric: 'cp 1 GB out of a container',
    daemon: [
      [READ, 1],
      [SOCKET, 0.5],
    ],
    client: [[SOCKET, 0.5]],
  },
];

function inProcess(action: () => void): Cost {
  const [begin, before] = [performance.now(), process.cpuUsage()];
  action();
  const { user, system } = process.cpuUsage(before);
  return { time: performance.now() - begin, processor: (user + system) / 1000 };
}

/** Runs a command of the shell, which tells the time of its programs in the end. */
function inShell(command: string, ...args: string[]): Cost {
  const begin = performance.now();
  const told = execFileSync('sh', ['-c', `${command}\ntimes`, ...args], { encoding: 'utf8' });
  const time = performance.now() - begin;
  const parts = [...told.matchAll(/(\d+)m([\d.]+)s/g)].map(
    ([, minutes, seconds]) => Number(minutes) * 60 + Number(seconds),
  );
  return { time, processor: parts.reduce((sum, part) => sum + part, 0) * 1000 };
}

function hash(bytes: number): void {
  const sha256 = createHash('sha256');
  for (let left = bytes; left > 0; left -= PIECE.length) sha256.update(PIECE.subarray(0, Math.min(left, PIECE.length)));
  sha256.digest();
}

const HASH_HALF = `const { createHash } = require('node:crypto');
const sha256 = createHash('sha256');
const piece = Buffer.alloc(1e6, 'floor');
for (let at = 0; at < ${HALF_GB / 2}; at += piece.length) sha256.update(piece);
sha256.digest();`;

async function hashInTwo(): Promise<Cost> {
  const [begin, before] = [performance.now(), process.cpuUsage()];
  await Promise.all(
    [1, 2].map(
      () =>
        new Promise<void>((resolve, reject) => {
          new Worker(HASH_HALF, { eval: true }).once('error', reject).once('exit', () => resolve());
        }),
    ),
  );
  const { user, system } = process.cpuUsage(before);
  return { time: performance.now() - begin, processor: (user + system) / 1000 };
}

function writeFile(path: string, bytes: number): void {
  const fd = openSync(path, 'w');
  for (let left = bytes; left > 0;) left -= writeSync(fd, PIECE, 0, Math.min(left, PIECE.length));
  closeSync(fd);
}

/** Writes files of the same sizes as those of a tree, into as many directories. */
function writeLike(tree: string, copy: string): () => void {
  const entries = readdirSync(tree, { recursive: true, encoding: 'utf8' }).map((name) => ({
    name: join(copy, name),
    stat: lstatSync(join(tree, name)),
  }));
  const files = entries.filter(({ stat }) => stat.isFile());
  return () => {
    mkdirSync(copy);
    for (const { name, stat } of entries) if (stat.isDirectory()) mkdirSync(name, { recursive: true });
    for (const { name, stat } of files) writeFile(name, stat.size);
  };
}

const SEND = `socat -u -b 131072 "UNIX-LISTEN:$0" OPEN:/dev/null &
socat -u -b 131072 /dev/zero,readbytes=${GB} "UNIX-CONNECT:$0,retry=100,interval=0.01"
wait`;

/** Does each step once, in a directory. */
async function takeSteps(dir: string, writeTree: () => void): Promise<Map<string, Cost>> {
  const [tree, file] = [join(dir, 'tree'), join(dir, 'file')];
  const costs = new Map<string, Cost>();
  // The disk has what was written before, so that a step does not wait for it.
  execFileSync('sync');
  costs.set(
    SHA,
    inProcess(() => hash(HALF_GB)),
  );
  costs.set(`${SHA} in two threads`, await hashInTwo());
  costs.set(WRITE_TREE, inProcess(writeTree));
  costs.set(READ_TREE, inShell('find "$0" -type f -exec cat {} + > /dev/null', tree));
  execFileSync('sync');
  costs.set(
    WRITE,
    inProcess(() => writeFile(file, GB)),
  );
  costs.set(READ, inShell('cat "$0" > /dev/null', file));
  costs.set(SOCKET, inShell(SEND, join(dir, 'socket')));
  for (const path of [tree, file]) rmSync(path, { recursive: true });
  return costs;
}

/** Middles of the steps over all rounds. */
function middles(rounds: readonly ReadonlyMap<string, Cost>[]): Map<string, Cost> {
  const of = (name: string, part: keyof Cost): number => median(rounds.map((costs) => costs.get(name)?.[part] ?? NaN));
  const names = [...(rounds[0]?.keys() ?? [])];
  return new Map(names.map((name) => [name, { time: of(name, 'time'), processor: of(name, 'processor') }]));
}

function print(steps: ReadonlyMap<string, Cost>, results: readonly MetricResult[]): void {
  const line = (...cells: string[]): void =>
    console.log(cells.map((cell, index) => (index === 0 ? cell.padEnd(38) : cell.padStart(16))).join(''));
  const ms = (value: number): string => `${value.toFixed(0)} ms`;
  const sum = (parts: Action['daemon']): number =>
    parts.reduce((total, [name, share]) => total + share * (steps.get(name)?.processor ?? NaN), 0);
  const engined = (name: string): number =>
    median(results.find(({ metric }) => metric.name === name)?.samples['engined'] ?? []);
  line('step', 'time', 'processor time');
  for (const [name, { time, processor }] of steps) line(name, ms(time), ms(processor));
  console.log();
  line('action', 'floor', 'engined', 'ratio');
  for (const { metric, daemon, client } of ACTIONS) {
    const floor = (sum(daemon) + sum(client)) / Math.min(availableParallelism(), 2);
    line(metric, ms(floor), ms(engined(metric)), `${(engined(metric) / floor).toFixed(2)}x`);
  }
  console.log();
  line('processor time of the daemon', 'floor', 'engined', 'ratio');
  for (const { name, metrics } of [saveLoad, importTar, copy]) {
    const own = ACTIONS.filter(({ metric }) => metrics.some((one) => one.name === metric));
    const floor = own.reduce((total, { daemon }) => total + sum(daemon), 0);
    const used = engined(`processor time of ${name}`);
    line(name, ms(floor), ms(used), `${(used / floor).toFixed(2)}x`);
  }
}

export interface FloorsCourse {
  readonly rounds: number | undefined;
  readonly setting: (tcpUrl: string) => Setting;
  /** Undefined where engined is not to be measured. */
  readonly contender: (measure: Measure) => Contender | undefined;
}

/** Takes the steps before and after the measures of the engine, and prints both beside each other. */
export async function measureFloors({ rounds = ROUNDS, setting, contender: find }: FloorsCourse): Promise<void> {
  const contender = (measure: Measure): Contender => {
    const found = find(measure);
    if (found === undefined) throw new Error('floors are for engined');
    return found;
  };
  const dir = mkdtempSync(join(tmpdir(), 'bench-floors-'));
  try {
    const engine = await Engine.start(contender(importTar).kind());
    try {
      await exportBigImage(engine, setting(''), join(dir, 'files.tar'));
    } finally {
      await engine.discard();
    }
    const pattern = join(dir, 'pattern');
    mkdirSync(pattern);
    execFileSync('tar', ['-xf', join(dir, 'files.tar'), '-C', pattern]);
    const writeTree = writeLike(pattern, join(dir, 'tree'));
    const steps: Map<string, Cost>[] = [];
    const takeAll = async (): Promise<void> => {
      for (let round = 0; round < rounds; round++) steps.push(await takeSteps(dir, writeTree));
    };
    await takeAll();
    const results: MetricResult[] = [];
    for (const measure of [saveLoad, importTar, copy])
      results.push(...(await take(measure, [contender(measure)], { rounds, versions: {}, setting })));
    await takeAll();
    print(middles(steps), results);
  } finally {
    rmSync(dir, { recursive: true });
  }
}
