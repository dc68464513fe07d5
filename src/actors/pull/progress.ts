/**
 * Progress messages as the Engine API has them, and the bar text that clients without a terminal of their own print.
 */

export type ProgressMessage = Readonly<Record<string, unknown>>;

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];
const BAR_WIDTH = 50;

/** Renders a size in decimal units with four significant digits: `1.234kB`. */
export function humanSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${Number(value.toPrecision(4))}${UNITS[unit] ?? ''}`;
}

/** Renders a bar, `[====>      ]  1.5kB/2kB`; only the amount when the total is unknown. */
export function progressBar(current: number, total: number): string {
  if (current <= 0 && total <= 0) return '';
  const amount = humanSize(current).padStart(8);
  if (total <= 0) return amount;
  const filled = Math.min(Math.floor(Math.floor((current / total) * 100) / 2), BAR_WIDTH);
  const bar = `[${'='.repeat(filled)}>${' '.repeat(BAR_WIDTH - filled)}] `;
  return current > total ? bar + amount : `${bar}${amount}/${humanSize(total)}`;
}

/** Returns the message for a change of state of one layer. */
export function stateMessage(status: string, id: string): ProgressMessage {
  return { status, progressDetail: {}, id };
}

/** Returns the message that tells how many bytes of one layer are done. */
export function bytesMessage(status: string, id: string, current: number, total: number): ProgressMessage {
  return { status, progressDetail: { current, total }, progress: progressBar(current, total), id };
}

/** Returns the last message of a pull that failed after its first byte. */
export function errorMessage(message: string): ProgressMessage {
  return { errorDetail: { message }, error: message };
}

/** Encodes a message; messages are separated by CR LF. */
export function encodeMessage(message: ProgressMessage): string {
  return `${JSON.stringify(message)}\r\n`;
}
