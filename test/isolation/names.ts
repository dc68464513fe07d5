/** Names of things that the poisonous file makes and that the file after it must not find. */
export const POISON_LINK = 'poison0';
export const POISON_PORT = 18_080;
/** The argument of its processes, by which they are found. */
export const POISON_SECONDS = '987654';
