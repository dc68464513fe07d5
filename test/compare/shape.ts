/** The form of an answer, without its values. */

/** Members that are names of things, not of fields: what is below them is one shape. */
const MAPS = new Set([
  'Labels',
  'Containers',
  'Networks',
  'Ports',
  'ExposedPorts',
  'PortBindings',
  'Volumes',
  'Options',
  'Runtimes',
  'IndexConfigs',
  'Sysctls',
  'Tmpfs',
  'networks',
  'stats',
  'Annotations',
  'DriverOpts',
  'Data',
  'Config#LogConfig',
]);

/** Each path in the answer with the types found there: `[].Names[] -> string`. */
export type Shape = ReadonlyMap<string, ReadonlySet<string>>;

/** One document, or several one after the other, as streams send them. Undefined when the body is no JSON. */
export function shapeOf(text: string): Shape | undefined {
  const documents = parse(text);
  if (!documents) return undefined;
  const shape = new Map<string, Set<string>>();
  for (const document of documents) collect(document, '', '', shape);
  return shape;
}

function parse(text: string): unknown[] | undefined {
  try {
    return [JSON.parse(text)];
  } catch {
    try {
      return text
        .split('\n')
        .filter((line) => line.trim() !== '')
        .map((line) => JSON.parse(line) as unknown);
    } catch {
      return undefined;
    }
  }
}

function collect(value: unknown, path: string, name: string, shape: Map<string, Set<string>>): void {
  const types = shape.get(path) ?? new Set();
  types.add(value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);
  shape.set(path, types);
  if (Array.isArray(value)) for (const item of value) collect(item, `${path}[]`, '', shape);
  else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value))
      collect(member, MAPS.has(name) ? `${path}.*` : `${path}.${key}`, MAPS.has(name) ? '' : key, shape);
  }
}
