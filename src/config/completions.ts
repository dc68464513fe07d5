/** Renders what shells complete after `engined`, from the table of options. */
import { COMMANDS } from './argv.js';
import { PLATFORM } from './help.js';
import { OPTION_LIST } from './options.js';

const SUBCOMMANDS = ['check', 'dial-stdio', 'fsck', 'migrate', 'upgrade'] as const;

interface Flag {
  readonly name: string;
  readonly doc: string;
  /** '' for a flag that needs no value. */
  readonly label: string;
  /** All values that there are; undefined when there is no such list. */
  readonly values: readonly string[] | undefined;
  readonly isRepeatable: boolean;
}

function flags(): Flag[] {
  const options = OPTION_LIST.flatMap(({ flag, doc, type }) =>
    flag === undefined
      ? []
      : [{ name: flag, doc, label: type.label, values: valuesOf(type.schema), isRepeatable: type.repeatable }],
  );
  const commands = COMMANDS.map(({ flag, doc }) => ({ ...NO_VALUE, name: flag, doc }));
  const platform = { ...NO_VALUE, name: PLATFORM.flag, doc: PLATFORM.doc, label: PLATFORM.label };
  return [...options, ...commands, { ...platform, values: ['linux', 'windows'] }].sort((a, b) =>
    a.name < b.name ? -1 : 1,
  );
}

const NO_VALUE = { label: '', values: undefined, isRepeatable: false };

function valuesOf(schema: Readonly<Record<string, unknown>>): string[] | undefined {
  const values = schema['enum'];
  return Array.isArray(values)
    ? values.filter((value): value is string => typeof value === 'string' && value !== '')
    : undefined;
}

/** Returns the completion for bash. A value that is on no list is completed as a path. */
export function bashCompletion(): string {
  const all = flags();
  const words = (list: readonly string[]): string => `COMPREPLY=($(compgen -W '${list.join(' ')}' -- "$word"))`;
  const lists = all.filter(({ values }) => values !== undefined);
  const open = all.filter(({ label, values }) => label !== '' && values === undefined);
  return `# Completion of engined for bash, made from the table of options.
_engined() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $before in
${lists.map(({ name, values = [] }) => `    --${name}) ${words(values)}; return ;;`).join('\n')}
    ${open.map(({ name }) => `--${name}`).join(' | ')}) return ;;
  esac
  case $word in
    -*) ${words(all.map(({ name }) => `--${name}`))} ;;
    *) [ "$COMP_CWORD" -ne 1 ] || ${words(SUBCOMMANDS)} ;;
  esac
}
complete -o default -F _engined engined
`;
}

/** Returns the completion for zsh. */
export function zshCompletion(): string {
  const specs = flags().map(({ name, doc, label, values, isRepeatable }) => {
    const value = values === undefined ? '_files' : `(${values.join(' ')})`;
    const rest = label === '' ? '' : `:${zsh(label)}:${value}`;
    return `  '${isRepeatable ? '*' : ''}--${name}[${zsh(doc)}]${rest}'`;
  });
  return `#compdef engined
# Completion of engined for zsh, made from the table of options.
_arguments \\
${specs.join(' \\\n')} \\
  '1:command:(${SUBCOMMANDS.join(' ')})'
`;
}

/** Escapes what means something to `_arguments`, in a text between single quotes. */
function zsh(text: string): string {
  return text.replaceAll(/[\\[\]:]/g, '\\$&').replaceAll("'", "'\\''");
}
