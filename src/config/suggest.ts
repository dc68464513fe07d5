/** Finds the key that somebody meant. */

/** Names of other engines for things that have another name here. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  graph: 'data-root',
  containerd: 'supervisor',
  'containerd-namespace': 'supervisor-namespace',
  'containerd-plugins-namespace': 'supervisor-plugins-namespace',
  'cri-containerd': 'cri-supervisor',
  'http-proxy': 'proxies.http-proxy',
  'https-proxy': 'proxies.https-proxy',
  'no-proxy': 'proxies.no-proxy',
};

/** Finds the feature that was meant by a typo or by a name that another engine uses. */
export function suggestFeature(unknown: string, known: readonly string[]): string | undefined {
  return unknown === 'containerd-snapshotter' ? 'supervisor-snapshotter' : nearest(unknown, known);
}

/** Returns the known key nearest to an unknown one; undefined when none is near. */
export function suggestKey(unknown: string, known: readonly string[]): string | undefined {
  return Object.hasOwn(OTHER_NAMES, unknown) ? OTHER_NAMES[unknown] : nearest(unknown, known);
}

function nearest(unknown: string, known: readonly string[]): string | undefined {
  const plain = unknown.toLowerCase().replaceAll('_', '-');
  let best: string | undefined;
  // A third of the letters may be wrong.
  let limit = Math.max(1, Math.floor(plain.length / 3)) + 1;
  for (const key of known) {
    const distance = editDistance(plain, key, limit);
    if (distance >= limit) continue;
    best = key;
    limit = distance;
  }
  return best;
}

/** Returns the Levenshtein distance; anything from `limit` on is reported as `limit`. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return Math.min(row[b.length] ?? limit, limit);
}
