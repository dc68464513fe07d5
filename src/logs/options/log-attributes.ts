/** A container's labels, environment and identity add these attributes to its log records. */
import type { LoggedContainer } from '../../ports/logs.js';
import { compilePattern, type Pattern, PatternError } from '../../text/pattern.js';
import { WorkBudget } from '../../text/work-budget.js';
import { badOption } from './option-values.js';
import { renderTag } from './log-tag.js';

/** Returns the attributes for files: those of `extraAttributes`, and `tag` if it is set. Throws invalid. */
export function logAttributes(container: LoggedContainer): Record<string, string> {
  const attributes = extraAttributes(container);
  const tag = renderTag(container.options['tag'] ?? '', container);
  return tag === '' ? attributes : { ...attributes, tag };
}

/**
 * Returns the labels and variables that the options `labels`, `labels-regex`, `env` and `env-regex` select. Throws
 * invalid for a bad pattern.
 */
export function extraAttributes({ options, labels, env: entries }: LoggedContainer): Record<string, string> {
  const env = entries.flatMap((entry): [string, string][] => {
    const equals = entry.indexOf('=');
    return equals < 0 ? [] : [[entry.slice(0, equals), entry.slice(equals + 1)]];
  });
  const ofLabels = pick(Object.entries(labels), options['labels'], pattern('labels-regex', options));
  return Object.fromEntries([...ofLabels, ...pick(env, options['env'], pattern('env-regex', options))]);
}

type Entry = readonly [name: string, value: string];

function pick(values: readonly Entry[], names: string | undefined, wanted: Pattern | undefined): Entry[] {
  const listed = new Set((names ?? '').split(','));
  return values.filter(([name]) => listed.has(name) || wanted?.(name) === true);
}

function pattern(option: 'labels-regex' | 'env-regex', options: LoggedContainer['options']): Pattern | undefined {
  const text = options[option];
  if (!text) return undefined;
  try {
    return compilePattern(text, new WorkBudget(`log option ${option}`));
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    throw badOption(`log option ${option} is not a regular expression: ${error.message}`, error);
  }
}
