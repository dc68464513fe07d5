/** Renders the text of `--help` from the table of options. */
import { COMMANDS } from './argv.js';
import { OPTION_LIST } from './options.js';
import { showValue } from './show.js';

interface Line {
  readonly flag: string;
  readonly short?: string | undefined;
  readonly label: string;
  readonly doc: string;
}

/** It is neither an option of the daemon nor a question of its own. */
export const PLATFORM = {
  flag: 'platform',
  label: 'string',
  doc: 'Platform that --validate checks for: linux or windows (default linux)',
} as const;

export function helpText(): string {
  const lines: Line[] = [
    ...OPTION_LIST.flatMap((option) => {
      const { flag, short, type, doc, defaultText } = option;
      if (flag === undefined) return [];
      const standard = defaultText ?? showDefault(showValue(option, option.default));
      return [{ flag, short, label: type.label, doc: standard === '' ? doc : `${doc} (default ${standard})` }];
    }),
    ...COMMANDS.map(({ flag, short, doc }) => ({ flag, short, label: '', doc })),
    PLATFORM,
  ].sort((a, b) => (a.flag < b.flag ? -1 : 1));
  const left = lines.map(
    ({ flag, short, label }) =>
      `  ${short === undefined ? '    ' : `-${short}, `}--${flag}${label === '' ? '' : ` ${label}`}`,
  );
  const width = Math.max(...left.map(({ length }) => length)) + 2;
  const rows = lines.map(({ doc }, index) => `${(left[index] ?? '').padEnd(width)}${doc}`);
  const usage = [
    'Usage:  engined [OPTIONS]',
    '        engined check [--json] [OPTIONS]',
    '        engined dial-stdio [--host unix://PATH]',
    '        engined fsck [--repair] [OPTIONS]',
    '        engined migrate --to DRIVER [OPTIONS]',
    '        engined migrate --remove DRIVER [OPTIONS]',
    '        engined upgrade [OPTIONS]',
  ];
  const about =
    'A container engine daemon, the check of the machine that it is to run on, and that of its data root. ' +
    'With dial-stdio a client of another host reaches the daemon through SSH. ' +
    'While it is stopped, migrate copies images and containers to another storage driver, or removes what one has. ' +
    'The running daemon hands over to the program that is called with upgrade.';
  return [...usage, '', about, '', 'Options:', ...rows, ''].join('\n');
}

/** Returns how a default is shown. Defaults that say nothing are left out. */
function showDefault(value: string): string {
  return ['', 'false', '0', '[]', 'map[]', 'undefined'].includes(value) ? '' : value;
}
