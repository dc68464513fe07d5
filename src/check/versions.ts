/** The versions of the runtimes and of containerd, compared with the list of known vulnerabilities. */
import type { Config } from '../config/config.js';
import { runProgram } from '../sys/process/spawn.js';
import {
  LISTED_ON,
  parseVersion,
  VULNERABILITIES,
  vulnerabilitiesOf,
  type Vulnerability,
} from './known-vulnerabilities.js';
import { type Row, row } from './row.js';

/** The version in what a program prints: `runc version 1.1.5+ds1`, `containerd github.com/… 1.6.20~ds1 …`. */
const VERSION = /(?:^|\s)v?(\d{1,6}\.\d{1,6}[\w.+~-]{0,100})/;
/** Distributors mark their versions so. They mend old versions without giving them another number. */
const DISTRIBUTOR = /[+~]|-\d/;

type Known = keyof typeof VULNERABILITIES;

export async function versionRows(config: Pick<Config, 'runtimes' | 'criSupervisor' | 'supervisor'>): Promise<Row[]> {
  const programs = [
    ['runc', 'runc'],
    ...Object.entries(config.runtimes).flatMap(([name, { path }]) => (path === undefined ? [] : [[name, path]])),
    // The version of a supervisor that somebody else runs is not known here.
    ...(config.supervisor === '' ? [['containerd', 'containerd']] : []),
  ] as const;
  const rows = await Promise.all(
    programs.map(async ([name = '', path = '']) => versionRow(name, path, config.criSupervisor)),
  );
  return rows.flat();
}

/** Returns no row for a program that is missing or says no version: other rows tell of it. */
async function versionRow(name: string, path: string, hasCri: boolean): Promise<Row[]> {
  const printed = await runProgram(path, ['--version']).then(
    ({ stdout }) => stdout,
    () => '',
  );
  const [, text = ''] = VERSION.exec(printed.slice(0, 1000)) ?? [];
  if (text === '') return [];
  const kind = knownKind(printed);
  const version = parseVersion(text);
  if (kind === undefined || version === undefined) return [row(`version of ${name}`, 'ok', text)];
  const found = vulnerabilitiesOf(version, VULNERABILITIES[kind]).filter(({ needsCri }) => !needsCri || hasCri);
  return [row(`version of ${name}`, verdictOf(found, text), describe(found, text))];
}

function knownKind(printed: string): Known | undefined {
  return (Object.keys(VULNERABILITIES) as Known[]).find((kind) => printed.startsWith(`${kind} `));
}

function verdictOf(found: readonly Vulnerability[], text: string): Row['verdict'] {
  if (found.length === 0) return 'ok';
  return DISTRIBUTOR.test(text) ? 'note' : 'warning';
}

function describe(found: readonly Vulnerability[], text: string): string {
  if (found.length === 0) return `${text}; nothing known (list of ${LISTED_ON})`;
  const ids = found.map(({ id }) => id).join(', ');
  return DISTRIBUTOR.test(text)
    ? `${text}; by its number it has ${ids} (list of ${LISTED_ON}), which the distributor may have mended`
    : `${text}; it has ${ids} (list of ${LISTED_ON}): install a newer version`;
}
