/** What a container's labels, environment and identity add to its log records. */
import type { LogDriver } from '../ports/logs.js';
import { messageOf } from '../errors/engine-error.js';
import { badOption } from './option-values.js';
import { renderTag } from './log-tag.js';

type LoggedContainer = Parameters<LogDriver['open']>[0];

/** Attributes for files: by the options of `extraAttributes`, and `tag`, when there is one. Throws invalid. */
export function logAttributes(container: LoggedContainer): Record<string, string> {
  const attributes = extraAttributes(container);
  const tag = renderTag(container.options['tag'] ?? '', container);
  return tag === '' ? attributes : { ...attributes, tag };
}

/** Labels and variables by the options `labels`, `labels-regex`, `env` and `env-regex`. Throws invalid for a bad pattern. */
export function extraAttributes({ options, labels, env: entries }: LoggedContainer): Record<string, string> {
  const env: Record<string, string> = {};
  for (const entry of entries) {
    const equals = entry.indexOf('=');
    if (equals >= 0) env[entry.slice(0, equals)] = entry.slice(equals + 1);
  }
  return { ...pick(labels, options['labels'], pattern('labels-regex', options)), ...pick(env, options['env'], pattern('env-regex', options)) };
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
    throw badOption(`log option ${option} is not a regular expression: ${messageOf(error)}`, error);
  }
}
