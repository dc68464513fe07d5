/** Reads the options of a container's endpoint as clients write them (`DriverOpts`), under either engine's names. */
import { option } from './network-options.js';

/** `DriverOpts` of an endpoint. */
export type EndpointOptions = Readonly<Record<string, string>>;

/** A kernel parameter of a link. */
export interface LinkParameter {
  /** Path below `/proc/sys/net`, without the link: `ipv4/conf` and `forwarding`. */
  readonly directory: string;
  readonly name: string;
  readonly value: string;
}

/**
 * Matches names of parameters only, so that no path leads elsewhere. The command line client writes the placeholder in
 * lower case.
 */
const PARAMETER = /^net\.((?:ipv4|ipv6|mpls)\.[a-z0-9_]+)\.(?:IFNAME|ifname)\.([a-z0-9_]+)(?:=(.*))?$/s;

/** Matches names that the kernel allows for a link, which have at most 15 bytes. */
const LINK_NAME = /^(?!\.{1,2}$)(?!lo$)[!-.0-9;-~]{1,15}$/;

/** Returns the name of the link inside the container; undefined if the client asks for none. */
export function wantedLinkName(options: EndpointOptions): string | undefined {
  return option({ options }, 'endpoint.ifname') || undefined;
}

/** Returns the parameters to set before the link is up, in the order in which they are written. */
export function linkParameters(options: EndpointOptions): LinkParameter[] {
  return entries(options).flatMap((entry) => {
    const [, directory, name, value] = PARAMETER.exec(entry) ?? [];
    return directory === undefined || name === undefined || value === undefined
      ? []
      : [{ directory: directory.replace('.', '/'), name, value }];
  });
}

/** Returns what is wrong with the options, in words for the client; empty if nothing is. */
export function endpointOptionProblems(options: EndpointOptions): string[] {
  const problems = entries(options).flatMap((entry) => {
    const found = PARAMETER.exec(entry);
    if (!found)
      return [
        `unrecognised network interface sysctl '${entry}'; ` +
          "represent 'net.X.Y.ethN.Z=V' as 'net.X.Y.IFNAME.Z=V', 'X' must be 'ipv4', 'ipv6' or 'mpls'",
      ];
    return found[3] === undefined ? [`expected sysctl '${entry}' to have format name=value`] : [];
  });
  const name = wantedLinkName(options);
  return name === undefined || LINK_NAME.test(name)
    ? problems
    : [
        ...problems,
        `invalid interface name '${name}': a link has 1 to 15 characters, no slash, colon or space, ` +
          "and is not called 'lo'",
      ];
}

function entries(options: EndpointOptions): string[] {
  return option({ options }, 'endpoint.sysctls')?.split(',') ?? [];
}
