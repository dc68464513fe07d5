/** Reads the filters by which clients choose records of the cache: `field==value,other~=pattern`. */
import { invalid } from '../../errors/engine-error.js';
import type { CacheUsage } from '../../ports/build.js';
import { compilePattern, type Pattern } from '../../text/pattern.js';
import { WorkBudget } from '../../text/work-budget.js';

const MAX_FILTER_CHARS = 4096;

type Selects = (record: CacheUsage) => boolean;

/** A record fits when it meets all terms of one filter; without filters all fit. @throws EngineError invalid. */
export function usageFilter(filters: readonly string[]): Selects {
  if (filters.length === 0) return () => true;
  const budget = new WorkBudget('filter');
  const alternatives = filters.map((filter) => {
    if (filter.length > MAX_FILTER_CHARS) throw invalid('a filter is too long');
    const terms = filter.split(',').map((term) => readTerm(term, budget));
    return (record: CacheUsage) => terms.every((selects) => selects(record));
  });
  return (record) => alternatives.some((selects) => selects(record));
}

function readTerm(term: string, budget: WorkBudget): Selects {
  for (const operator of ['==', '!=', '~=']) {
    const at = term.indexOf(operator);
    if (at < 1) continue;
    const field = term.slice(0, at);
    const value = unquoted(term.slice(at + operator.length));
    if (operator === '==') return (record) => valuesOf(record, field).includes(value);
    if (operator === '!=') return (record) => !valuesOf(record, field).includes(value);
    const pattern = compile(value, budget);
    return (record) => valuesOf(record, field).some(pattern);
  }
  return (record) => valuesOf(record, term).length > 0;
}

function unquoted(value: string): string {
  return value.length > 1 && value.startsWith('"') && value.endsWith('"') ? value.slice(1, -1) : value;
}

function compile(pattern: string, budget: WorkBudget): Pattern {
  try {
    return compilePattern(pattern, budget);
  } catch (error) {
    throw invalid(`invalid filter pattern ${JSON.stringify(pattern)}`, { cause: error });
  }
}

/** True for a directory that builds write to. */
export function isMutable({ type }: CacheUsage): boolean {
  return type === 'exec.cachemount' || type === 'source.local';
}

/** The values of a field; none means that a record does not have it. */
function valuesOf(record: CacheUsage, field: string): readonly string[] {
  switch (field) {
    case 'id':
      return [record.id];
    case 'parent':
    case 'parents':
      return record.parents;
    case 'description':
      return [record.description];
    case 'type':
      return [record.type];
    case 'inuse':
      return record.inUse ? ['true'] : [];
    case 'shared':
      return record.shared ? ['true'] : [];
    case 'private':
      return record.shared ? [] : ['true'];
    case 'mutable':
      return isMutable(record) ? ['true'] : [];
    case 'immutable':
      return isMutable(record) ? [] : ['true'];
    default:
      return [];
  }
}
