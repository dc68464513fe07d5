/** Renders the JSON Schema of the configuration file from the table of options. */
import { OPTION_LIST } from './options.js';

/** Returns a schema of draft 2020-12. Editors complete and check daemon.json with it. */
export function configSchema(): Record<string, unknown> {
  const properties: Record<string, Record<string, unknown>> = {};
  for (const { key, type, doc, default: standard, defaultText } of OPTION_LIST) {
    if (key === undefined) continue;
    const [group, member] = key.includes('.')
      ? [key.slice(0, key.indexOf('.')), key.slice(key.indexOf('.') + 1)]
      : [undefined, key];
    const hasDefault = defaultText === undefined && standard !== undefined && standard !== '';
    const schema = { description: doc, ...type.schema, ...(hasDefault ? { default: standard } : {}) };
    if (group === undefined) {
      properties[member] = schema;
      continue;
    }
    const object = (properties[group] ??= {
      type: 'object',
      properties: {},
      additionalProperties: false,
    });
    Object.assign(object['properties'] as object, { [member]: schema });
  }
  properties['host-gateway-ip'] = {
    description: 'One address, as older daemons knew it; use host-gateway-ips',
    type: 'string',
    deprecated: true,
  };
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Configuration of engined',
    type: 'object',
    properties: Object.fromEntries(Object.entries(properties).sort(([a], [b]) => (a < b ? -1 : 1))),
    additionalProperties: false,
  };
}
