/**
 * Looks up a member by a name that somebody else chose. A plain index would also find what every object inherits:
 * `constructor`, `toString`, `__proto__`.
 */
export function ownMember<T>(members: Readonly<Record<string, T>> | null | undefined, name: string): T | undefined {
  return members && Object.hasOwn(members, name) ? members[name] : undefined;
}
