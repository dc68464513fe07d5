/** A module of its own, so that it is loaded only when there is YAML to read. */
export { parse as parseYaml } from 'yaml';
