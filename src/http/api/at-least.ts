/** Asks whether the request's version of the API is at least this one. */
export type AtLeast = (major: number, minor: number) => boolean;
