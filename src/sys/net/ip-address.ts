/** Converts IP addresses between text and bytes. */
import { isIP, isIPv4 } from 'node:net';

/** Returns 4 or 6; 0 for what is no address. One with a zone (`fe80::1%eth0`) is none: it is a place on one host. */
export function addressFamily(text: string): 0 | 4 | 6 {
  return text.includes('%') ? 0 : (isIP(text) as 0 | 4 | 6);
}

/** Returns 4 or 16 bytes, most significant first. `address` must be valid (node:net isIP); a zone is left out. */
export function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number));
  const [text = ''] = address.split('%');
  const [head = '', tail] = text.split('::');
  const left = groupsOf(head);
  const right = tail === undefined ? [] : groupsOf(tail);
  const bytes = Buffer.alloc(16);
  left.forEach((group, index) => bytes.writeUInt16BE(group, index * 2));
  right.forEach((group, index) => bytes.writeUInt16BE(group, (8 - right.length + index) * 2));
  return bytes;
}

/** Returns the shortest text (RFC 5952) of 4 or 16 bytes. */
export function addressText(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, index) => ((bytes[index * 2] ?? 0) << 8) | (bytes[index * 2 + 1] ?? 0));
  let longest = { start: 0, length: 0 };
  for (let start = 0; start < 8; start++) {
    let length = 0;
    while (start + length < 8 && groups[start + length] === 0) length++;
    if (length > longest.length) longest = { start, length };
  }
  const hex = (part: readonly number[]): string => part.map((group) => group.toString(16)).join(':');
  if (longest.length < 2) return hex(groups);
  return `${hex(groups.slice(0, longest.start))}::${hex(groups.slice(longest.start + longest.length))}`;
}

/** Returns the 16-bit groups of an address; a trailing IPv4 address makes two. */
function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [parseInt(group, 16)];
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
    return [(a << 8) | b, (c << 8) | d];
  });
}
