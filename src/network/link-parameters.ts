/** Sets kernel parameters of links, in the network namespace that the thread is in. */
import { closeSync, openSync, readFileSync, write as writeTo, writeFileSync, writeSync } from 'node:fs';
import { promisify } from 'node:util';
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

/**
 * Gives a link IPv6 with a link-local address, or disables IPv6 on it, so that the link does not even listen.
 * @param inside runs a function in the network namespace of the link. A file that was opened there changes that one,
 * wherever it is written.
 */
export function setIpv6(link: string, isWanted: boolean, inside: <T>(open: () => T) => T): Promise<void> {
  return writeInLine(ipv6File(link, 'disable_ipv6'), isWanted ? '0' : '1', inside);
}

/**
 * Puts a link into a network namespace that shall not have IPv6 on it. The link has none from its beginning, since each
 * link begins with the default: to disable it later, a thread spins until the kernel's lock over all links is free.
 * @param inside as for `setIpv6`, which is still to be called: the default may be changed meanwhile.
 */
export async function plugWithoutIpv6(inside: <T>(open: () => T) => T, plug: () => Promise<void>): Promise<void> {
  const fd = inside(() => openOther(ipv6File('default', 'disable_ipv6'), '1'));
  if (fd === undefined) return plug();
  try {
    writeSync(fd, '1', 0);
    await plug().finally(() => writeSync(fd, '0', 0));
  } finally {
    closeSync(fd);
  }
}

/** Opens the file of a parameter that exists, can be written and has another value. */
function openOther(file: string, value: string): number | undefined {
  try {
    return readFileSync(file, 'utf8').trim() === value ? undefined : openSync(file, 'r+');
  } catch {
    return undefined;
  }
}

/**
 * Keeps what containers announce from changing the host: a router advertisement would give it an address and a default
 * route through the container that sent it. `hasIpv6`: the host has an address of its own on the link.
 */
export function guardHostLink(link: string, hasIpv6: boolean): Promise<void> {
  refuseAdvertisements(link);
  return writeInLine(ipv6File(link, 'disable_ipv6'), hasIpv6 ? '0' : '1', (open) => open());
}

/**
 * Writes that stand in one line, each on a thread of the pool. The kernel changes this parameter under its lock over
 * all links, for which it may wait for 10 ms when containers come and go.
 */
let line: Promise<unknown> = Promise.resolve();

const writeText = promisify<number, string>(writeTo);

/** Sets a parameter if it exists and has another value. */
async function writeInLine(file: string, value: string, inside: <T>(open: () => T) => T): Promise<void> {
  let fd: number | undefined;
  try {
    // A file that cannot be written may already have the wanted value.
    fd = inside(() => (readFileSync(file, 'utf8').trim() === value ? undefined : openSync(file, 'r+')));
    if (fd === undefined) return;
    const opened = fd;
    const written = line.then(() => writeText(opened, value));
    line = written.catch(() => undefined);
    await written;
  } catch (error) {
    if (!isMissing(error)) throw unwritable(file, error);
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

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
