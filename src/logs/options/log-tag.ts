/** The `tag` of a log: a template in the small part of Go's language that tags are written in. */
import { hostname } from 'node:os';
import type { LoggedContainer } from '../../ports/logs.js';
import { badOption } from './option-values.js';
import { ownMember } from '../../text/own-member.js';

type Fields = Readonly<Record<string, string | undefined>>;

/** A tag is limited because it is in every record, and `pad` or the name of a long command can make it long. */
const MAX_TAG_LENGTH = 65_536;

/** The existing engine uses this tag where a driver needs one and none is given. */
const DEFAULT_TAG = '{{.ID}}';

const FUNCTIONS: Readonly<Record<string, (value: string, ...args: readonly string[]) => string>> = {
  lower: (value) => value.toLowerCase(),
  upper: (value) => value.toUpperCase(),
  title: (value) => value.replaceAll(/(^|\s)(\S)/g, (_, space: string, letter: string) => space + letter.toUpperCase()),
  json: (value) => JSON.stringify(value),
  truncate: (value, length = '') => value.slice(0, Number(length)),
  pad: (value, before = '', after = '') => (value === '' ? value : blanks(before) + value + blanks(after)),
};

function blanks(count: string): string {
  return ' '.repeat(Math.min(Number(count), MAX_TAG_LENGTH));
}

/** Returns the tag of a container, for drivers that always send one. Throws invalid. */
export function tagOf(container: LoggedContainer): string {
  return renderTag(container.options['tag'] || DEFAULT_TAG, container);
}

/**
 * Fills in what is in braces: a field such as `.Name`, or a function of one, written `{{lower .Name}}`,
 * `{{.Name | lower}}` or `{{truncate .ID 6}}`. Throws invalid for anything else.
 */
export function renderTag(template: string, container: LoggedContainer): string {
  const fields = fieldsOf(container);
  let text = '';
  let at = 0;
  for (let start = template.indexOf('{{'); start >= 0; start = template.indexOf('{{', at)) {
    const end = template.indexOf('}}', start + 2);
    if (end < 0) throw badOption(`template: log-tag: unclosed action in ${template}`);
    text += template.slice(at, start) + render(template.slice(start, end + 2), fields);
    if (text.length > MAX_TAG_LENGTH)
      throw badOption(`log option tag becomes longer than ${MAX_TAG_LENGTH} characters`);
    at = end + 2;
  }
  return text + template.slice(at);
}

/** Renders one action. @param whole includes its braces, and the dashes that trim blanks. */
function render(whole: string, fields: Fields): string {
  const action = whole.slice(whole[2] === '-' ? 3 : 2, whole.at(-3) === '-' ? -3 : -2);
  const [first = '', ...rest] = action.split('|').map((command) => command.trim());
  return rest.reduce((value, command) => apply(command, fields, value, whole), apply(first, fields, undefined, whole));
}

function apply(command: string, fields: Fields, piped: string | undefined, whole: string): string {
  const words = command.split(/\s+/);
  const [head = '', ...args] = words;
  const valueOf = (word: string): string => {
    if (/^".*"$/.test(word)) return word.slice(1, -1);
    if (/^\d+$/.test(word)) return word;
    const value = word.startsWith('.') ? ownMember(fields, word.slice(1)) : undefined;
    if (value === undefined) throw badOption(`log option tag has an unknown field: ${whole}`);
    return value;
  };
  const call = ownMember(FUNCTIONS, head);
  if (call === undefined) {
    if (args.length > 0 || piped !== undefined) throw badOption(`log option tag has an unknown function: ${whole}`);
    return valueOf(head);
  }
  const [value, ...others] = [...args.map(valueOf), ...(piped === undefined ? [] : [piped])];
  if (value === undefined) throw badOption(`log option tag has a function without its value: ${whole}`);
  return call(value, ...others);
}

function fieldsOf({ id, name, imageName, imageId, command }: LoggedContainer): Fields {
  return {
    ID: id.slice(0, 12),
    FullID: id,
    ContainerID: id,
    Name: name,
    ContainerName: `/${name}`,
    ImageName: imageName,
    ContainerImageName: imageName,
    ImageID: imageId?.slice(0, 12),
    ImageFullID: imageId,
    ContainerImageID: imageId,
    Command: command?.join(' '),
    Hostname: hostname(),
    DaemonName: 'engined',
  };
}
