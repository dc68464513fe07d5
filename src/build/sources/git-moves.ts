/**
 * Repositories that their server has moved. git sends a login that it has as a header to whatever host a redirect
 * names, so it follows none from the server that gets the login. Where that one leads is looked up here, and git starts
 * again.
 */
import { type HttpLimits, sendRequest } from '../../registry/http.js';

/** A login at one server. */
export interface HttpLogin {
  /** Scheme and host, as in `https://host:444`. */
  readonly origin: string;
  /** Value of the header `Authorization`. */
  readonly value: string;
}

const LIMITS: HttpLimits = { connectMs: 30_000, responseMs: 60_000, idleMs: 30_000 };
/** A repository may have moved several times, and its submodules, too. */
const MAX_MOVES = 20;
/** git adds this to the address of a repository that it asks for. */
const PATH = '/info/refs';
const QUERY = '?service=git-upload-pack';
const REFUSED = /unable to access '([^'\n]{1,2000})': The requested URL returned error: 30[12378]\n/g;
/** git names the address that a submodule was given, also when it has asked at another one. */
const MODULE_FAILED = /clone of '([^'\n]{1,2000})' into submodule path /g;

/** The moves that one command of git has met. */
export class GitMoves {
  /** New addresses by those that git was given, without a slash at the end; its own for one that stays. */
  readonly #known = new Map<string, string>();
  #count = 0;

  constructor(
    private readonly login: HttpLogin,
    private readonly signal: AbortSignal,
  ) {}

  /** Tells whether git should start again, because it has stopped (as `stderr` says) at a redirect that leads on. */
  async follow(stderr: string): Promise<boolean> {
    let hasMoved = false;
    for (const [, shown = ''] of stderr.matchAll(REFUSED)) {
      const from = shown.replace(/\/$/, '');
      if ((this.#known.get(from) ?? from) !== from || this.#count >= MAX_MOVES) continue;
      this.#count += 1;
      const to = await this.#target(from);
      if (to === undefined) continue;
      const given = [...this.#known].find(([, known]) => known === from)?.[0] ?? from;
      this.#known.set(given, to);
      hasMoved = true;
    }
    return this.#keepOthers(stderr) || hasMoved;
  }

  /** Returns arguments with the new addresses. */
  replace(args: readonly string[]): readonly string[] {
    return args.map((arg) => this.#known.get(arg) ?? arg);
  }

  /** Configuration that gives new addresses to what is not among the arguments: submodules. */
  configuration(args: readonly string[]): [key: string, value: string][] {
    return [...this.#known].flatMap(([from, to]): [string, string][] =>
      args.includes(from) ? [] : [[`url.${to}.insteadOf`, from]],
    );
  }

  /**
   * git rewrites each address that begins like a given one: with `repo` that of `repo-lib`, too. One that has failed is
   * asked for at its own place then. Returns whether there is such a one.
   */
  #keepOthers(stderr: string): boolean {
    let isAny = false;
    for (const [, given = ''] of stderr.matchAll(MODULE_FAILED)) {
      const isRewritten = [...this.#known.keys()].some((from) => given.startsWith(from) && !isSame(given, from));
      if (!isRewritten || this.#known.has(given) || this.#count >= MAX_MOVES) continue;
      this.#count += 1;
      this.#known.set(given, given);
      isAny = true;
    }
    return isAny;
  }

  /** Returns undefined when the server names no place of a repository. */
  async #target(from: string): Promise<string | undefined> {
    const { login, signal } = this;
    try {
      const url = new URL(`${from}${PATH}${QUERY}`);
      if (url.origin !== new URL(login.origin).origin) return undefined;
      const headers = { authorization: login.value };
      const tls = { verify: true };
      const response = await sendRequest({
        method: 'GET',
        url: url.href,
        headers,
        tls,
        limits: LIMITS,
        signal,
        isRedirected: false,
      });
      response.destroy();
      const to = new URL(response.headers.location ?? '', url);
      const isWeb = to.protocol === 'https:' || to.protocol === 'http:';
      if (!isWeb || to.search !== QUERY || !to.pathname.endsWith(PATH)) return undefined;
      return `${to.origin}${to.pathname.slice(0, -PATH.length)}`;
    } catch {
      signal.throwIfAborted();
      // git has said already that it was redirected.
      return undefined;
    }
  }
}

function isSame(address: string, other: string): boolean {
  return address === other || address === `${other}/`;
}
