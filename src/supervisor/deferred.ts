/** A promise that is settled from outside (Promise.withResolvers of later Node versions). */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (reason: Error) => void;
}

export function deferred<T = void>(): Deferred<T> {
  let settle: Omit<Deferred<T>, 'promise'> | undefined;
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  // The executor has run by now; the fallback is for the type checker.
  return { promise, ...(settle ?? { resolve: () => {}, reject: () => {} }) };
}
