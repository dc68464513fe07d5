/** Reads the arguments of `npm run bench`. */
import { parseArgs } from 'node:util';

const USAGE = `npm run bench -- [OPTIONS] measures engined and dockerd by turns (docs/performance.md).

  --only NAME,...        some of the measures:
                         MEASURES
  --engine NAME          engined or dockerd alone
  --rounds NUMBER        so many rounds, whatever the spread
  --peer VERSION         another dockerd, such as 20.10
  --before MAIN          beside an earlier build, whose dist/bundle/main.js is named
  --history FILE         keeps the results there, a line for each run
  --storage-driver NAME  for all daemons; with btrfs, they are on a file system of the bench; snapshotter: that of
                         containerd, with the feature of each engine
  --timeline NAME        draws where the time of one action goes: start, exec, pull, push or build
  --floors               save, load, import and copies beside what disk, socket and sha256 take for the same bytes
  --scale                asks a daemon that has very many containers and images
`;
const COLUMNS = 110;
const INDENT = ' '.repeat(25);

export interface BenchOptions {
  readonly only: readonly string[] | undefined;
  readonly engine: string | undefined;
  readonly rounds: number | undefined;
  readonly before: string | undefined;
  readonly history: string | undefined;
  readonly timeline: string | undefined;
  readonly floors: boolean;
  readonly scale: boolean;
  readonly storageDriver: string | undefined;
}

/** Returns the options; ends the process when help was asked for (0), or when there is a fault in them (2). */
export function readOptions(measures: readonly string[]): BenchOptions {
  try {
    return parse(measures);
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${usage(measures)}`);
    return process.exit(2);
  }
}

function parse(measures: readonly string[]): BenchOptions {
  const { values } = parseArgs({
    options: {
      help: { type: 'boolean', short: 'h' },
      only: { type: 'string' },
      engine: { type: 'string' },
      rounds: { type: 'string' },
      before: { type: 'string' },
      history: { type: 'string' },
      timeline: { type: 'string' },
      floors: { type: 'boolean' },
      scale: { type: 'boolean' },
      'storage-driver': { type: 'string' },
    },
  });
  if (values.help === true) {
    process.stdout.write(usage(measures));
    process.exit(0);
  }
  const only = values.only?.split(',');
  const unknown = only?.find((name) => !measures.includes(name));
  if (unknown !== undefined) throw new Error(`there is no measure ${unknown}`);
  const rounds = values.rounds === undefined ? undefined : Number(values.rounds);
  if (rounds !== undefined && !(Number.isInteger(rounds) && rounds > 0))
    throw new Error(`--rounds ${values.rounds} is not a whole number above 0`);
  const { engine } = values;
  if (engine !== undefined && engine !== 'engined' && engine !== 'dockerd')
    throw new Error(`there is no engine ${engine}`);
  const { before, history, timeline, floors = false, scale = false, 'storage-driver': storageDriver } = values;
  return { only, engine, rounds, before, history, timeline, floors, scale, storageDriver };
}

/** Lists the measures in lines of a terminal's width. */
function usage(measures: readonly string[]): string {
  const lines = [INDENT];
  for (const name of measures) {
    const line = lines.at(-1) ?? '';
    if (line.length + name.length < COLUMNS) lines[lines.length - 1] = `${line}${line === INDENT ? '' : ' '}${name}`;
    else lines.push(`${INDENT}${name}`);
  }
  return USAGE.replace(`${INDENT}MEASURES`, lines.join('\n'));
}
