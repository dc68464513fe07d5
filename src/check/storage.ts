/** The data root: which storage drivers could keep layers there, and whether sizes of containers would be kept. */
import type { Config } from '../config/config.js';
import { messageOf } from '../errors/engine-error.js';
import type { DriverRow } from '../storage/drivers/driver.js';
import { STORAGE_DRIVERS } from '../storage/drivers/index.js';
import { driverCandidates, driversWithData, nearestDirectory, snapshotterOf } from '../storage/drivers/selection.js';
import { type Row, row } from './row.js';

type StorageConfig = Pick<Config, 'dataRoot' | 'features' | 'storageDriver' | 'storageOpts'>;

/** The size with which a driver is asked whether it would keep one. */
const ANY_SIZE = '1g';

export function storageRows({ dataRoot, features, storageDriver, storageOpts }: StorageConfig): Row[] {
  const snapshotter = snapshotterOf(features, storageDriver);
  if (snapshotter !== undefined)
    return [row('storage drivers', 'ok', `chosen: the snapshotter ${snapshotter} of the supervisor`)];
  const directory = nearestDirectory(dataRoot);
  const reasons = new Map(STORAGE_DRIVERS.map((driver) => [driver.name, refusalOf(driver, directory, [])]));
  const possible = STORAGE_DRIVERS.filter(({ name }) => reasons.get(name) === undefined);
  const chosen = driverCandidates(storageDriver, dataRoot).find((driver) => possible.includes(driver));
  const others = [...reasons].flatMap(([name, reason]) => (reason === undefined ? [] : [`${name}: ${reason}`]));
  const found = `possible below ${directory}: ${possible.map(({ name }) => name).join(', ') || 'none'}`;
  if (!chosen) return [row('storage drivers', 'failure', [found, ...others].join('; '))];
  const isThere = driversWithData(dataRoot).includes(chosen.name);
  return [
    row('storage drivers', 'ok', [`${found}; ${isThere ? 'in use' : 'chosen'}: ${chosen.name}`, ...others].join('; ')),
    sizeRow(chosen, directory, storageOpts),
  ];
}

/** Tells whether `--storage-opt size=` would hold. Drivers without an option for it decide for each container. */
function sizeRow(driver: DriverRow, directory: string, storageOpts: readonly string[]): Row {
  const name = 'size limits';
  const option = driver.options.find((known) => known.name === `${driver.name}.size`);
  if (!option) return row(name, 'note', `the driver ${driver.name} decides when a container is created`);
  const reason = refusalOf(driver, directory, [...storageOpts, `${option.name}=${ANY_SIZE}`]);
  return reason === undefined
    ? row(name, 'ok', `the file system of ${directory} keeps sizes of containers`)
    : row(name, 'note', reason);
}

function refusalOf(driver: DriverRow, directory: string, storageOpts: readonly string[]): string | undefined {
  try {
    driver.check?.(directory, storageOpts);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}
