/** Contexts of SELinux, the labels of processes and files: `user:role:type:level`, where the level may have colons. */

export interface Context {
  readonly user: string;
  readonly role: string;
  readonly type: string;
  /** Sensitivity and categories, such as `s0:c1,c2`; empty in a policy without them. */
  readonly level: string;
}

/** Returns undefined for a text that is no context. */
export function parseContext(text: string): Context | undefined {
  const [user = '', role = '', type = '', ...level] = text.split(':');
  return user === '' || role === '' || type === '' ? undefined : { user, role, type, level: level.join(':') };
}

export function formatContext({ user, role, type, level }: Context): string {
  return [user, role, type, ...(level === '' ? [] : [level])].join(':');
}
