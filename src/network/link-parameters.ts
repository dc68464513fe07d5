/** Sets kernel parameters of links, in the network namespace that the thread is in. */
import { readFileSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { type EngineError, internal, messageOf } from '../errors/engine-error.js';

const ipv6File = (link: string, name: string): string => `/proc/sys/net/ipv6/conf/${link}/${name}`;

/** Sets a parameter. @throws EngineError internal naming the file: it does not exist, or cannot have the value. */
export function setParameter(file: string, value: string): void {
  try {
    // If the file cannot be written, it may already have the wanted value.
    if (readFileSync(file, 'utf8').trim() !== value) writeFileSync(file, value, { flag: 'r+' });
  } catch (error) {
    throw unwritable(file, error);
  }
}

function unwritable(file: string, error: unknown): EngineError {
  const reason = isMissing(error)
    ? `${file} is not a sysctl file`
    : `unable to write to '${file}': ${messageOf(error)}`;
  return internal(reason, { code: 'LINK_PARAMETER', cause: error });
}

/** Gives a link IPv6 with a link-local address, or disables IPv6 on it, so that the link does not even listen. */
export function setIpv6(link: string, isWanted: boolean): void {
  setIpv6Parameter(link, 'disable_ipv6', isWanted ? '0' : '1');
}

/**
 * Keeps what containers announce from changing the host: a router advertisement would give it an address and a default
 * route through the container that sent it. `hasIpv6`: the host has an address of its own on the link.
 */
export function guardHostLink(link: string, hasIpv6: boolean): Promise<void> {
  refuseAdvertisements(link);
  const write = line.then(async () => {
    const file = ipv6File(link, 'disable_ipv6');
    const value = hasIpv6 ? '0' : '1';
    try {
      if (readFileSync(file, 'utf8').trim() !== value) await writeFile(file, value, { flag: 'r+' });
    } catch (error) {
      if (!isMissing(error)) throw unwritable(file, error);
    }
  });
  line = write.catch(() => undefined);
  return write;
}

/**
 * Writes that stand in one line, each on a thread of the pool. The kernel changes this parameter under its lock over
 * all links, for which it may wait for 10 ms when containers come and go.
 */
let line: Promise<unknown> = Promise.resolve();

/** Makes the host take no address and no route from advertisements on this link. */
export function refuseAdvertisements(link: string): void {
  setIpv6Parameter(link, 'accept_ra', '0');
}

/** Sets a parameter of IPv6, if it exists: without IPv6 in the kernel, or with a small MTU, a link has none. */
function setIpv6Parameter(link: string, name: string, value: string): void {
  const file = ipv6File(link, name);
  try {
    setParameter(file, value);
  } catch (error) {
    if (!(error instanceof Error && isMissing(error.cause))) throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'EISDIR');
}
