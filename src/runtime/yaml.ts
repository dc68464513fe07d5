/** A module of its own, as few hosts have YAML to read: in the bundle its code is a text until it is first needed. */
export { parse as parseYaml } from 'yaml';
