/** Volumes as the Engine API shows them. */

/** A volume as the store knows it. */
export interface VolumeInfo {
  readonly name: string;
  readonly driver: string;
  readonly mountpoint: string;
  readonly createdAt: string;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly options: Readonly<Record<string, string>> | null;
  readonly isAnonymous: boolean;
  readonly scope?: 'global';
  readonly status?: Readonly<Record<string, unknown>>;
}

/** Renders a volume as the API shows it. */
export function volumeView({
  createdAt,
  driver,
  labels,
  mountpoint,
  name,
  options,
  scope,
  status,
}: VolumeInfo): Readonly<Record<string, unknown>> {
  return {
    ...(createdAt === '' ? {} : { CreatedAt: createdAt }),
    Driver: driver,
    Labels: labels,
    Mountpoint: mountpoint,
    Name: name,
    Options: options,
    Scope: scope ?? 'local',
    ...(status === undefined ? {} : { Status: status }),
  };
}
