/** The ways to write a MAC address of six bytes that Go's ParseMAC knows, and the one in which it is shown. */

const FORMS = [
  /^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/i,
  /^[0-9a-f]{2}(?:-[0-9a-f]{2}){5}$/i,
  /^[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}$/i,
  /^[0-9a-f]{12}$/i,
];

/** Returns the address as `02:42:ac:11:00:02`; undefined for a text that is none. */
export function parseMacAddress(text: string): string | undefined {
  if (!FORMS.some((form) => form.test(text))) return undefined;
  return text
    .toLowerCase()
    .replaceAll(/[^0-9a-f]/g, '')
    .match(/../g)
    ?.join(':');
}
