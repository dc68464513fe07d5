/** Commands: messages that ask for exactly one reply, typed by what they answer. */

export type RequestId = number;

declare const reply: unique symbol;

/** A command of the given type whose reply is an `R`. `req` is the token under which the reply is booked. */
export interface Command<Type extends string, R = void> {
  readonly type: Type;
  readonly req: RequestId;
  readonly [reply]?: (value: R) => R;
}

/** The type of the answer to a command. */
export type ReplyOf<C> = C extends { readonly [reply]?: (value: never) => infer R } ? R : never;

/** A command as the asker writes it: the kit adds the token. */
export type Unasked<C> = C extends unknown ? Omit<C, 'req' | typeof reply> : never;

/** Tells an actor that nobody waits for this reply any more. */
export interface RequestCancelled {
  readonly type: 'request.cancelled';
  readonly req: RequestId;
}
