/** The merged values, held and checked by convict against the schema that the table of options makes. */
import convict from 'convict';
import { invalid } from '../errors/engine-error.js';
import { OPTION_LIST, type NamedOption, type OptionName, type Values } from './options.js';
import type { Setting } from './settings.js';
import { isObject } from './value-types.js';

/**
 * Returns the merged values. Each source was checked when it was read; this is the last look at the whole.
 * @throws Error: a bug of the merging.
 */
export function valuesOf(settings: ReadonlyMap<OptionName, Setting>): Values {
  const schema = convict<Record<string, unknown>>(
    Object.fromEntries(OPTION_LIST.map((option) => [option.name, toSchema(option)])),
    { env: {}, args: [] },
  );
  for (const [name, { value }] of settings) schema.set(name, box(value));
  schema.validate({ allowed: 'strict' });
  const held = schema.getProperties();
  return Object.fromEntries(OPTION_LIST.map((option) => [option.name, unbox(option, held[option.name])])) as Values;
}

function toSchema(option: NamedOption): convict.SchemaObj<unknown> {
  return {
    doc: option.doc,
    default: box(option.default),
    sensitive: option.credentials === true,
    format: (value: unknown) => {
      if (option.default !== undefined && kind(unbox(option, value)) !== kind(option.default))
        throw invalid(`must be of type ${kind(option.default)}`);
    },
  };
}

/** Wraps an object: convict takes dots in names of members for paths, and options of drivers are full of dots. */
function box(value: unknown): unknown {
  return isObject(value) ? [value] : value;
}

function unbox(option: NamedOption, value: unknown): unknown {
  return Array.isArray(value) && !Array.isArray(option.default) ? (value[0] as unknown) : value;
}

function kind(value: unknown): string {
  return Array.isArray(value) ? 'array' : typeof value;
}
