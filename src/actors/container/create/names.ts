/** Container names: the rules, the reservation table and the generator of default names. */
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { conflict, invalid } from '../../../errors/engine-error.js';

const VALID = /^\/?[a-zA-Z0-9][a-zA-Z0-9_.-]+$/;

const ADJECTIVES = (
  'able agile amber ample balmy bold brave breezy bright brisk calm candid clever cosmic crisp daring deft ' +
  'eager early earnest elated fair fancy fast fluent fond frank fresh gentle glad golden grand happy hardy ' +
  'hearty honest humble ideal jolly jovial keen kind lively loyal lucid lucky mellow merry mighty modest ' +
  'neat nimble noble open patient placid polite prime proud quick quiet rapid ready robust rosy serene ' +
  'sharp silent sleek smart smooth solid spry stable steady still sunny swift tidy tender trusty upbeat ' +
  'vast vivid warm wise witty zesty'
).split(' ');
const SURNAMES = (
  'archimedes babbage bell bohr boole borg boyle brahe carson cerf church copernicus cray curie dalton ' +
  'darwin dijkstra dirac edison einstein engelbart euclid euler faraday fermat fermi feynman franklin ' +
  'galileo gauss germain goodall hamilton hawking heisenberg hertz hodgkin hoare hopper hubble hypatia ' +
  'jang joliot kepler knuth kovalevsky lamarr lamport leavitt lehmann liskov lovelace maxwell mayer ' +
  'mcclintock meitner mendel mendeleev mirzakhani moore morse newton nightingale noether pasteur pike ' +
  'planck ptolemy raman ride ritchie rubin sanger shannon sinoussi stallman tesla thompson torvalds turing ' +
  'volhard wiles wright wu yalow yonath'
).split(' ');

/**
 * Reserves names (`/name`) for container ids. Reservations are synchronous, so two creates can never both get a name.
 */
export class Names {
  readonly #ids = new Map<string, string>();

  get(name: string): string | undefined {
    return this.#ids.get(withSlash(name));
  }

  /** Takes a name for an id and returns it with its slash. Throws invalid for a bad name, conflict for a taken one. */
  reserve(name: string, id: string): string {
    if (!VALID.test(name))
      throw invalid(`Invalid container name (${name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed`, {
        code: 'INVALID_NAME',
      });
    const full = withSlash(name);
    const owner = this.#ids.get(full);
    if (owner !== undefined && owner !== id) {
      throw conflict(
        `Conflict. The container name "${full}" is already in use by container "${owner}". ` +
          'You have to remove (or rename) that container to be able to reuse that name.',
        { code: 'CONTAINER_NAME_IN_USE' },
      );
    }
    this.#ids.set(full, id);
    return full;
  }

  /**
   * Reserves a new `adjective_surname`. A digit follows when the first one is taken; the short id is the last choice.
   */
  generate(id: string): string {
    for (let attempt = 0; attempt < 6; attempt++) {
      const name = `/${pick(ADJECTIVES)}_${pick(SURNAMES)}${attempt === 0 ? '' : randomInt(10)}`;
      if (!this.#ids.has(name)) return this.reserve(name, id);
    }
    return this.reserve(id.slice(0, 12), id);
  }

  /** Gives a name back, unless somebody else has it by now. */
  release(name: string, id: string): void {
    if (this.#ids.get(name) === id) this.#ids.delete(name);
  }
}

/**
 * Returns a new id of 64 hex digits. Its short form of 12 digits is never a plain number, because hostnames and old
 * clients cannot handle one.
 */
export function newContainerId(): string {
  return containerIdFrom(randomBytes(32).toString('hex'));
}

/** Returns the id that belongs to these 64 hex digits, which are taken as they are where they can be. */
export function containerIdFrom(digits: string): string {
  let id = digits;
  while (!/[a-f]/.test(id.slice(0, 12))) id = createHash('sha256').update(id).digest('hex');
  return id;
}

function withSlash(name: string): string {
  return name.startsWith('/') ? name : `/${name}`;
}

function pick(words: readonly string[]): string {
  return words[randomInt(words.length)] ?? '';
}
