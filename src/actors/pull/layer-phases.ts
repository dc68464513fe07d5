/**
 * The steps of a layer's transfer and how each is shown: one row a step, for both forms of a pull's progress. The
 * classic stream has texts of its own for each; the typed one has phases, of which several steps can share one.
 */
import type { LayerView } from './layer-view.js';

/** The phases of a layer in the typed form. The last three are final. */
export type LayerPhase = 'wait' | 'download' | 'verify' | 'extract' | 'cached' | 'done' | 'failed';

export type Detail = Readonly<Record<string, unknown>>;

/** A line of the classic stream: a newer line with the same status replaces it. */
export interface ClassicLine {
  readonly status: string;
  /** The text to show; absent: the status. */
  readonly text?: string;
  /** Bytes up to which the line has a bar. */
  readonly bytes?: number;
}

export interface ShownStep {
  readonly phase: LayerPhase;
  readonly detail?: Detail;
  /** Bytes of the blob that have arrived; absent: as many as before. */
  readonly bytes?: number;
  readonly lines: readonly ClassicLine[];
}

type Rows = {
  readonly [Type in LayerView['type']]: (view: Extract<LayerView, { readonly type: Type }>, total: number) => ShownStep;
};

const ROWS: Rows = {
  waiting: () => ({ phase: 'wait', lines: [{ status: 'Waiting' }] }),
  downloading: ({ bytes, endpoint }) => ({
    phase: 'download',
    detail: { endpoint },
    bytes,
    lines: [{ status: 'Downloading', bytes }],
  }),
  retrying: ({ seconds, reason, endpoint }) => ({
    phase: 'download',
    detail: { endpoint, retry: { afterSeconds: seconds, reason } },
    lines:
      seconds === 0 ? [] : [{ status: 'Retrying', text: `Retrying in ${seconds} second${seconds === 1 ? '' : 's'}` }],
  }),
  // The last bytes and this step can come as one, so a download is always shown up to its last byte.
  verifying: (_, total) => ({
    phase: 'verify',
    bytes: total,
    lines: [{ status: 'Downloading', bytes: total }, { status: 'Verifying Checksum' }],
  }),
  fetched: (_, total) => ({ phase: 'verify', bytes: total, lines: [{ status: 'Download complete' }] }),
  extracting: ({ bytes }, total) => ({
    phase: 'extract',
    bytes: total,
    lines: [{ status: 'Download complete' }, { status: 'Extracting', bytes }],
  }),
  unpacking: ({ bytes }, total) => ({ phase: 'extract', bytes: total, lines: [{ status: 'Extracting', bytes }] }),
  extracted: (_, total) => ({ phase: 'extract', bytes: total, lines: [] }),
};

/** Returns how a step is shown. @param total size of the blob. */
export function showStep(view: LayerView, total: number): ShownStep {
  const row = ROWS[view.type] as (view: LayerView, total: number) => ShownStep;
  return row(view, total);
}
