/** What a container's labels, environment and identity add to each of its log records. */
import { invalid, messageOf } from '../errors/engine-error.js';
import type { LogDriver } from '../ports/logs.js';

type LoggedContainer = Parameters<LogDriver['open']>[0];

/** Attributes by the options `labels`, `labels-regex`, `env`, `env-regex` and `tag`. Throws invalid for a bad pattern. */
export function logAttributes(container: LoggedContainer): Record<string, string> {
  const { options, labels } = container;
  const env: Record<string, string> = {};
  for (const entry of container.env) {
    const equals = entry.indexOf('=');
    if (equals >= 0) env[entry.slice(0, equals)] = entry.slice(equals + 1);
  }
  const attributes = {
    ...pick(labels, options['labels'], pattern('labels-regex', options)),
    ...pick(env, options['env'], pattern('env-regex', options)),
  };
  const tag = renderTag(options['tag'] ?? '', container);
  return tag === '' ? attributes : { ...attributes, tag };
}

function pick(values: Readonly<Record<string, string>>, names: string | undefined, wanted: RegExp | undefined): Record<string, string> {
  const listed = new Set((names ?? '').split(','));
  return Object.fromEntries(Object.entries(values).filter(([name]) => listed.has(name) || wanted?.test(name) === true));
}

function pattern(option: string, options: LoggedContainer['options']): RegExp | undefined {
  const text = options[option];
  if (!text) return undefined;
  try {
    return new RegExp(text, 'u');
  } catch (error) {
    throw invalid(`log option ${option} is not a regular expression: ${messageOf(error)}`, { code: 'LOG_OPTION', cause: error });
  }
}

/** Fills in `{{.Name}}` and its like. Throws invalid for anything else in braces. */
function renderTag(template: string, { id, name, imageName, imageId }: LoggedContainer): string {
  const fields: Readonly<Record<string, string | undefined>> = {
    ID: id.slice(0, 12),
    FullID: id,
    Name: name,
    ImageName: imageName,
    ImageID: imageId?.slice(0, 12),
    ImageFullID: imageId,
    DaemonName: 'engined',
  };
  return template.replaceAll(/\{\{(.*?)\}\}/g, (whole, action: string) => {
    const value = fields[action.trim().replace(/^\./, '')];
    if (value === undefined || !action.trim().startsWith('.')) throw invalid(`log option tag has an unknown field: ${whole}`, { code: 'LOG_OPTION' });
    return value;
  });
}
