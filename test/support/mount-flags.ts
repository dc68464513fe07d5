/** The flag `--mount` of commands that make containers: fields and values as the API has them. */
import { split } from './pairs.js';

const FIELDS = [
  'type',
  'src|source',
  'dst|target|destination',
  'readonly',
  'volume-nocopy',
  'volume-subpath',
  'volume-driver',
  'volume-label',
  'volume-opt',
  'image-subpath',
  'tmpfs-mode',
];
const FIELD = `(?:(?:${FIELDS.join('|')})(?:=[^,"]*)?|tmpfs-size=\\d+m)`;

/** Flags of these fields are understood here; quoted ones, and those that have other values, are for the CLI. */
export const MOUNT = new RegExp(`^type=(?:bind|volume|tmpfs|image),${FIELD}(?:,${FIELD})*$`);

/** Returns the mount that a flag of the form above asks for. */
export function mountOf(flag: string): object {
  const fields = flag.split(',').map((field) => (field.includes('=') ? split(field) : ([field, 'true'] as const)));
  const all = (...names: readonly string[]): readonly string[] =>
    fields.filter(([name]) => names.includes(name)).map(([, value]) => value);
  const one = (...names: readonly string[]): string | undefined => all(...names).at(-1);
  const pairs = (name: string): Readonly<Record<string, string>> => Object.fromEntries(all(name).map(split));
  const type = one('type') ?? '';
  const driver = { Name: one('volume-driver'), Options: pairs('volume-opt') };
  const [size, mode] = [one('tmpfs-size'), one('tmpfs-mode')];
  return {
    Type: type,
    Source: one('src', 'source') ?? '',
    Target: one('dst', 'target', 'destination') ?? '',
    ReadOnly: one('readonly') === 'true',
    ...(type === 'volume' && {
      VolumeOptions: {
        NoCopy: one('volume-nocopy') === 'true',
        Subpath: one('volume-subpath') ?? '',
        Labels: pairs('volume-label'),
        ...((driver.Name !== undefined || Object.keys(driver.Options).length > 0) && { DriverConfig: driver }),
      },
    }),
    ...(type === 'image' && { ImageOptions: { Subpath: one('image-subpath') ?? '' } }),
    ...(type === 'tmpfs' && {
      TmpfsOptions: {
        ...(size !== undefined && { SizeBytes: Number.parseInt(size) * 2 ** 20 }),
        ...(mode !== undefined && { Mode: Number.parseInt(mode, 8) }),
      },
    }),
  };
}
