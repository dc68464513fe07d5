/**
 * YAML has a module of its own because few hosts have YAML to read: in the bundle its code stays a text until it is
 * first needed.
 */
export { parse as parseYaml } from 'yaml';
