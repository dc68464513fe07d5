/** Options of containers about their SELinux labels: `label=type:x` among the security options. */
import { invalid } from '../../errors/engine-error.js';

export interface LabelOptions {
  /** The container has no label of its own. */
  readonly isDisabled: boolean;
  /** Processes of the container may use SELinux themselves. */
  readonly isNested: boolean;
  readonly process: { readonly user?: string; readonly role?: string; readonly type?: string; readonly level?: string };
  /** The type of the container's files. */
  readonly fileType?: string;
}

const PARTS = new Set(['user', 'role', 'type', 'level']);
const KNOWN = "valid options 'disable, nested, user, role, level, type, filetype'";

/** Parses the options that are about labels. @throws EngineError invalid for another word. */
export function parseLabelOptions(securityOptions: readonly string[]): LabelOptions {
  let isDisabled = false;
  let isNested = false;
  let fileType: string | undefined;
  const process = new Map<string, string>();
  for (const text of securityOptions) {
    const [, option] = /^label[=:](.*)$/s.exec(text) ?? [];
    if (option === undefined) continue;
    const colon = option.indexOf(':');
    const [name, value] = colon === -1 ? [option, ''] : [option.slice(0, colon), option.slice(colon + 1)];
    if (option === 'disable') isDisabled = true;
    else if (option === 'nested') isNested = true;
    else if (colon === -1 || value === '' || !(PARTS.has(name) || name === 'filetype'))
      throw invalid(
        `bad label option ${JSON.stringify(option)}, ${KNOWN}, those but the first two followed by : and a value`,
      );
    else if (name === 'filetype') fileType = value;
    else process.set(name, value);
  }
  return {
    isDisabled,
    isNested,
    process: Object.fromEntries(process),
    ...(fileType === undefined ? {} : { fileType }),
  };
}

/** Returns the options that give a container the label of another one; none for a label that is not there. */
export function optionsOf(label: string | undefined): string[] {
  const [user, role, type, ...level] = label?.split(':') ?? [];
  if (!user || !role || !type) return [];
  const parts = { user, role, type, ...(level.length > 0 ? { level: level.join(':') } : {}) };
  return Object.entries(parts).map(([name, value]) => `label=${name}:${value}`);
}
