/** Renders docs/configuration.md from the table of options. */
import { COMMANDS } from './argv.js';
import { IDLE_KEYS, IDLE_OPTIONS, titleOf } from './notices.js';
import { OPTION_LIST, type NamedOption } from './options.js';
import { showValue } from './show.js';

/** Returns the whole page. A test compares it with the file. */
export function configurationDoc(): string {
  const configurable = OPTION_LIST.filter(({ flag, key }) => flag !== undefined || key !== undefined);
  const environment = OPTION_LIST.filter(({ env }) => env !== undefined);
  return `${INTRODUCTION}
## Options

| Flag | Key in the file | Type | Default | Reload | Windows | Meaning |
|---|---|---|---|---|---|---|
${configurable.map(optionRow).join('\n')}

Flags that ask for something instead of setting an option:
${COMMANDS.map(({ flag, doc }) => `\`--${flag}\` (${doc.toLowerCase()})`).join(', ')},
\`--platform\` (with \`--validate\`: check a file for \`linux\` or \`windows\`).

## Without effect

These are accepted and checked, for the sake of files of other daemons or of another host, and nothing comes of them.
The daemon logs one line for each at its start, and \`GET /engine/config\` has them among its \`notices\`, beside
warnings such as a runtime without a program.

| Key | When | Why |
|---|---|---|
${[
  ...IDLE_OPTIONS.map(({ name, when, reason }) => [titleOf(name), when, reason]),
  ...[...IDLE_KEYS].map(([key, reason]) => [key, '', reason]),
]
  .map(([key = '', when = '', reason = '']) => `| \`${key}\` | ${when} | ${reason} |`)
  .join('\n')}

## Environment

| Variable | Stands for | Meaning |
|---|---|---|
${environment.map(environmentRow).join('\n')}

Flags and the file win over the environment. Where two spellings are listed, the first that is set counts.
`;
}

const INTRODUCTION = `# Configuration

<!-- Made from the table in src/config/options.ts by scripts/write-config-docs.mjs; do not edit. -->

engined is configured by flags and by a JSON file, \`/etc/engine/daemon.json\` unless \`--config-file\` names another.
The default file may be missing, a named one must exist. With \`--rootless\` it and other files are elsewhere
(rootless.md). \`engined --validate\` checks both and starts nothing;
\`engined --print-config-schema\` prints the JSON Schema of the file for editors.

- Flags may be written \`--name=value\` or \`--name value\`, short ones \`-x value\`, \`-xvalue\` or \`-x=value\`. A
  boolean flag needs no value. Flags of type list, map, ulimit, runtime and pool-options may be given several times.
- Sizes take units: \`64m\`, \`64MB\` and \`64MiB\` are all 64 times 1024 times 1024 bytes. Times take \`90\`, \`90s\`
  or \`1m30s\`.
- An option that is given both as a flag and in the file is an error, whatever the values are. There is one exception:
  unit files start the daemon with \`-H fd://\`; when all \`--host\` flags are \`fd://\`, the sockets of the service
  manager are added to \`hosts\` of the file.
- Keys that are not listed here are an error, as are keys that are given twice and features that do not exist.
- What is wrong is refused by \`--validate\`, by a start and by a reload in the same words; that includes what this host
  or this daemon cannot do, such as a cgroup driver whose manager does not run.
- On SIGHUP the file is read again. If anything in it is wrong, nothing changes. Otherwise all options marked "yes"
  under Reload change at once, those that are no longer in the file go back to their defaults, and for the others
  the daemon says that they need a restart.
`;

function optionRow(option: NamedOption): string {
  const { flag, short, key, type, unit, reloadable, windows, doc } = option;
  const flags = flag === undefined ? '' : `\`--${flag}\`${short === undefined ? '' : `, \`-${short}\``}`;
  const label = type.label || (flag === undefined ? 'object' : 'boolean');
  const kind = unit === undefined || unit === label ? label : `${label}, ${unit}`;
  return row([flags, code(key), kind, showDefault(option), reloadable ? 'yes' : '', windows ? 'yes' : '', escape(doc)]);
}

function environmentRow({ env = [], flag, doc }: NamedOption): string {
  return row([env.map(code).join(', '), flag === undefined ? '' : code(`--${flag}`), escape(doc)]);
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

function code(name: string | undefined): string {
  return name === undefined ? '' : `\`${name}\``;
}

function showDefault(option: NamedOption): string {
  if (option.defaultText !== undefined) return escape(option.defaultText);
  if (option.default === undefined || option.default === '' || option.default === 0) return '';
  const shown = showValue(option, option.default);
  return shown === '[]' || shown === 'map[]' ? '' : `\`${shown}\``;
}

function escape(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
