/**
 * Parses the kernel's counter files. Parts that are not numbers are left out, because kernels add lines as they please.
 */
import type { InterfaceUsage } from '../ports/stats.js';

const NUMBER = /^\d+$/;

/** Parses a file with one number; `max` and unreadable files yield `otherwise`. */
export function oneNumber(text: string | undefined, otherwise: bigint): bigint {
  const trimmed = text?.trim() ?? '';
  return NUMBER.test(trimmed) ? BigInt(trimmed) : otherwise;
}

/** Parses lines of `name number`. */
export function namedNumbers(text: string | undefined): Map<string, bigint> {
  const numbers = new Map<string, bigint>();
  if (text === undefined) return numbers;
  for (let at = 0; at < text.length;) {
    const newline = text.indexOf('\n', at);
    const end = newline === -1 ? text.length : newline;
    const space = text.indexOf(' ', at);
    const value = space === -1 || space > end ? '' : text.slice(space + 1, end);
    if (NUMBER.test(value)) numbers.set(text.slice(at, space), BigInt(value));
    at = end + 1;
  }
  return numbers;
}

/**
 * Makes a reader of lines of `name number` in which the numbers of some names count; those of others are not looked at.
 * It returns the number of each name at its index; 0 for a missing one.
 */
export function lineReader(names: readonly string[]): (text: string | undefined) => bigint[] {
  const places = new Map(names.map((name, index) => [name, index]));
  // The files of one kernel have the same lines: that a line begins as the one before it in its place is told faster.
  const before: { readonly begin: string; readonly place: number | undefined }[] = [];
  return (text = '') => {
    const values = names.map(() => 0n);
    text.split('\n').forEach((line, index) => {
      let known = before[index];
      if (known === undefined || !line.startsWith(known.begin)) {
        const space = line.indexOf(' ');
        before[index] = known = { begin: line.slice(0, space + 1), place: places.get(line.slice(0, space)) };
      }
      if (known.place === undefined) return;
      const value = line.slice(known.begin.length);
      if (value !== '0' && NUMBER.test(value)) values[known.place] = BigInt(value);
    });
    return values;
  };
}

/** These interfaces are made by the kernel in every network namespace, or have no traffic of their own. */
const NOT_THE_CONTAINERS = /^(?:lo|(?:sit|tunl|ip6tnl|gre|gretap|erspan|ip_vti|ip6_vti|ip6gre|ifb|dummy|teql)\d+)$/;

/** Parses `/proc/PID/net/dev`, without loopback. */
export function parseNetDev(text: string): Record<string, InterfaceUsage> {
  const interfaces = new Map<string, InterfaceUsage>();
  for (const line of text.split('\n').slice(2)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).trim();
    if (colon < 0 || NOT_THE_CONTAINERS.test(name)) continue;
    const numbers = line
      .slice(colon + 1)
      .trim()
      .split(/\s+/);
    const at = (index: number): bigint => BigInt(numbers[index] ?? 0);
    interfaces.set(name, {
      rxBytes: at(0),
      rxPackets: at(1),
      rxErrors: at(2),
      rxDropped: at(3),
      txBytes: at(8),
      txPackets: at(9),
      txErrors: at(10),
      txDropped: at(11),
    });
  }
  return Object.fromEntries(interfaces);
}

/** On all our platforms, kernels show times to programs in this unit. */
const NS_PER_TICK = 10_000_000n;

export function ticksToNs(ticks: bigint): bigint {
  return ticks * NS_PER_TICK;
}

/** Parses `/proc/stat`: the time of all processors together, and their number. */
export function parseHostCpu(text: string): { readonly systemNs: bigint; readonly onlineCpus: number } {
  const [total = ''] = text.split('\n', 1);
  // user, nice, system, idle, iowait, irq and softirq, as the known engine adds them up.
  const ticks = total
    .split(/\s+/)
    .slice(1, 8)
    .reduce((sum, field) => sum + BigInt(field), 0n);
  return { systemNs: ticksToNs(ticks), onlineCpus: text.match(/^cpu\d+ /gm)?.length ?? 0 };
}
