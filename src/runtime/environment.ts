/** Makes the environment of container processes. HOME is left to the runtime, because only it knows the final user. */

const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Returns PATH, HOSTNAME and TERM (with a terminal), then `overlays` in turn: a later value replaces an earlier one of
 * the same name, and a bare name removes it.
 */
export function buildEnvironment(
  options: { readonly hostname: string; readonly tty: boolean },
  ...overlays: (readonly string[])[]
): string[] {
  const variables = new Map<string, string>([
    ['PATH', DEFAULT_PATH],
    ['HOSTNAME', options.hostname],
  ]);
  if (options.tty) variables.set('TERM', 'xterm');
  for (const entry of overlays.flat()) {
    const at = entry.indexOf('=');
    if (at === -1) variables.delete(entry);
    else variables.set(entry.slice(0, at), entry.slice(at + 1));
  }
  return Array.from(variables, ([name, value]) => `${name}=${value}`);
}
