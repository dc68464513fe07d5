/** Renders the manual pages, engined(8) and engined-daemon.json(5), from the table of options. */
import { COMMANDS } from './argv.js';
import { helpText, PLATFORM } from './help.js';
import { OPTION_LIST, type NamedOption } from './options.js';
import { showValue } from './show.js';

export interface ManPageFacts {
  readonly version: string;
  /** `2026-11-25`. */
  readonly date: string;
}

interface FlagEntry {
  readonly flag: string;
  readonly short: string | undefined;
  readonly label: string;
  readonly text: string;
}

/** Returns the page of the program in roff. */
export function programManPage(facts: ManPageFacts): string {
  const usage = helpText()
    .split('\n\n')[0]
    ?.split('\n')
    .map((line) => line.replace('Usage:', '').trim());
  const flags = OPTION_LIST.flatMap((option): FlagEntry[] => {
    const { flag, short, type } = option;
    return flag === undefined ? [] : [{ flag, short, label: type.label, text: meaning(option) }];
  });
  const commands = COMMANDS.map(({ flag, short, doc }): FlagEntry => ({ flag, short, label: '', text: `${doc}.` }));
  const platform: FlagEntry = { ...PLATFORM, short: undefined, text: `${PLATFORM.doc}.` };
  const entries = [...flags, ...commands, platform].sort((a, b) => (a.flag < b.flag ? -1 : 1));
  return [
    header('ENGINED', 8, facts),
    section('NAME', 'engined \\- container engine daemon'),
    section('SYNOPSIS', ...(usage ?? []).flatMap((line) => [`.B ${roff(line)}`, '.br'])),
    section('DESCRIPTION', ...DESCRIPTION.map(roff)),
    section(
      'OPTIONS',
      ...entries.flatMap(({ short, flag, label, text }) => [
        '.TP',
        `.BI "${roff(`${short === undefined ? '' : `-${short}, `}--${flag}`)}"${label && ` " ${roff(label)}"`}`,
        roff(text),
      ]),
    ),
    section('FILES', ...terms(FILES)),
    section(
      'ENVIRONMENT',
      ...OPTION_LIST.flatMap((option) =>
        (option.env ?? []).flatMap((name) => [
          '.TP',
          `.B ${roff(name)}`,
          roff(option.flag === undefined ? `${option.doc}.` : `Stands for --${option.flag}.`),
        ]),
      ),
    ),
    section('SIGNALS', ...terms(SIGNALS)),
    section('SEE ALSO', '.BR engined\\-daemon.json (5),', '.BR systemd.socket (5)'),
    '',
  ].join('\n');
}

/** Returns the page of the configuration file in roff. */
export function configurationManPage(facts: ManPageFacts): string {
  const keys = OPTION_LIST.flatMap((option) => (option.key === undefined ? [] : [{ ...option, key: option.key }]));
  return [
    header('ENGINED-DAEMON.JSON', 5, facts),
    section('NAME', 'engined\\-daemon.json \\- configuration of the container engine daemon'),
    section('SYNOPSIS', '.I /etc/engine/daemon.json'),
    section('DESCRIPTION', ...FILE_DESCRIPTION.map(roff)),
    section(
      'KEYS',
      ...keys
        .sort((a, b) => (a.key < b.key ? -1 : 1))
        .flatMap((option) => {
          const label = option.type.label || (option.flag === undefined ? 'object' : 'boolean');
          const reload = option.reloadable === true ? ' A reload applies it.' : '';
          return ['.TP', `.BR ${roff(option.key)} " (${roff(label)})"`, roff(`${meaning(option)}${reload}`)];
        }),
    ),
    section('SEE ALSO', '.BR engined (8)'),
    '',
  ].join('\n');
}

const DESCRIPTION = [
  'The daemon serves the Docker-compatible Engine API on unix and TCP sockets, so that unmodified clients work.',
  'Containers run under containerd and an OCI runtime, which it starts and watches itself.',
  'Whoever may send requests to it has the rights of root on its machine.',
  '"engined check" says what the machine lacks, "engined fsck" compares the data root with its records, and',
  '"engined migrate" copies images and stopped containers to another storage driver.',
  '"engined upgrade" makes the running daemon hand over to this program, if no service manager restarts it.',
  '"engined dial-stdio" joins its input and output with the socket, for clients that come through SSH.',
];

const FILES: readonly (readonly [string, string])[] = [
  ['/etc/engine/daemon.json', 'The configuration, unless --config-file names another file. It may be missing.'],
  ['/run/engine.sock', 'The socket. Root and the members of the group "engine" may use it.'],
  ['/var/lib/engine', 'Images, containers, volumes and logs, unless --data-root names another directory.'],
  [
    '/usr/libexec/engined/docker',
    'What "docker -H ssh://" runs on a host without the docker CLI, when a directory on PATH has a link to it.',
  ],
  ['/run/engine', 'The state that a restart of the machine may forget, unless --exec-root says otherwise.'],
];

const SIGNALS: readonly (readonly [string, string])[] = [
  ['SIGHUP', 'The configuration file is read again. When anything in it is wrong, nothing changes.'],
  ['SIGTERM, SIGINT', 'The daemon stops its containers and ends. With live-restore they go on.'],
  ['SIGUSR1', 'The state of the daemon is written to a file below the exec root; the log says to which.'],
];

const FILE_DESCRIPTION = [
  'The file is one JSON object with the keys below; all of them are optional. Unknown keys, and keys that are given',
  'twice or as a flag too, are refused. The daemon reads the file when it starts and at SIGHUP.',
  '"engined --validate" checks it, and "engined --print-config-schema" prints its JSON Schema.',
];

function header(title: string, section: number, { version, date }: ManPageFacts): string {
  return `.TH ${roff(title)} ${section} ${date} "engined ${roff(version)}" "Container engine"`;
}

function section(title: string, ...lines: readonly string[]): string {
  return [`.SH ${title}`, ...lines].join('\n');
}

function terms(list: readonly (readonly [term: string, text: string])[]): string[] {
  return list.flatMap(([term, text]) => ['.TP', `.B ${roff(term)}`, roff(text)]);
}

/** Returns what an option means, with its default where that says something. */
function meaning(option: NamedOption): string {
  const standard = option.defaultText ?? showValue(option, option.default);
  const isSilent = ['', 'false', '0', '[]', 'map[]', 'undefined'].includes(standard);
  return `${option.doc}${isSilent ? '' : ` (default ${standard})`}.`;
}

/** Escapes text: a line of roff that begins with a dot or a quote is a request, and a bare hyphen is typographic. */
function roff(text: string): string {
  const escaped = text.replaceAll('\\', '\\e').replaceAll('-', '\\-');
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}
