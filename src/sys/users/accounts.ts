/** Parses the files passwd(5) and group(5), of a host or of a container. */

export interface PasswdEntry {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

export interface GroupEntry {
  readonly name: string;
  readonly gid: number;
  /** Names with commas between them. */
  readonly members: string;
}

/** Lines that are no entries are left out. */
export function parsePasswd(text: string): PasswdEntry[] {
  return fields(text).flatMap(([name = '', , uid = '', gid = '']) => {
    const numbers = [parseId(uid), parseId(gid)] as const;
    return numbers[0] === undefined || numbers[1] === undefined ? [] : [{ name, uid: numbers[0], gid: numbers[1] }];
  });
}

/** As `parsePasswd`. */
export function parseGroup(text: string): GroupEntry[] {
  return fields(text).flatMap(([name = '', , gid = '', members = '']) => {
    const number = parseId(gid);
    return number === undefined ? [] : [{ name, gid: number, members }];
  });
}

/** Tells whether a user is a member of a group. The names of a large group would take much memory when cut apart. */
export function hasMember({ members }: GroupEntry, name: string): boolean {
  return name !== '' && !name.includes(',') && `,${members},`.includes(`,${name},`);
}

/** Returns the number in a text; undefined for a name. */
export function parseId(text: string): number | undefined {
  return /^-?\d+$/.test(text) ? Number(text) : undefined;
}

/** Lines that hold anything, without spaces around them, cut at the colons. */
export function fields(text: string): string[][] {
  return text.split('\n').flatMap((line) => (line.trim() === '' ? [] : [line.trim().split(':')]));
}
