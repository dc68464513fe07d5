/**
 * The numbers of the host that one container has tried, so that it tries none twice: it may want thousands of ports,
 * all of them of one range.
 */
import type { PortRequest } from '../ports/network.js';

export class TriedNumbers {
  /** For each number that was tried, a later one, before which all were tried; by protocol and address. */
  readonly #later = new Map<string, Map<number, number>>();

  /** Yields the numbers that are left for a port; the last one in any case, because its failure says what is wrong. */
  *choices({ protocol, hostIp, hostPort: first, hostPortEnd: last = first }: PortRequest): Generator<number> {
    const later = this.#of(`${protocol} ${hostIp}`);
    let number = untried(later, first);
    if (number > last) yield last;
    for (; number <= last; number = untried(later, number)) {
      later.set(number, number + 1);
      yield number;
    }
  }

  #of(place: string): Map<number, number> {
    const known = this.#later.get(place) ?? new Map<number, number>();
    this.#later.set(place, known);
    return known;
  }
}

/** Returns the first number from here on that was not tried. The way there is kept, so that nobody walks it again. */
function untried(later: Map<number, number>, from: number): number {
  const passed: number[] = [];
  let number = from;
  for (let next = later.get(number); next !== undefined; next = later.get(number)) {
    passed.push(number);
    number = next;
  }
  for (const each of passed) later.set(each, number);
  return number;
}
