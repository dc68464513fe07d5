/** Worker tasks of storage drivers. A module is loaded by the thread that first needs it. */
export const DRIVER_TASKS = {
  'btrfs-enable-quota': async () => (await import('./btrfs/tasks.js')).enableQuota,
  'btrfs-make-container': async () => (await import('./btrfs/tasks.js')).makeContainer,
  'btrfs-begin-layer': async () => (await import('./btrfs/tasks.js')).beginLayer,
  'btrfs-make-tree': async () => (await import('./btrfs/tasks.js')).makeTree,
  'btrfs-remove': async () => (await import('./btrfs/tasks.js')).removeDirectories,
  'btrfs-renew-limit': async () => (await import('./btrfs/tasks.js')).renewLimit,
  'btrfs-seal-layer': async () => (await import('./btrfs/tasks.js')).sealLayer,
  'compare-trees': async () => (await import('../trees/compare-trees.js')).compareTrees,
  'fill-copy': async () => (await import('./snapshotter/tasks.js')).fillCopy,
  'fill-tree': async () => (await import('../trees/fill-tree.js')).fillTree,
  'overlay-mount-mapped': async () => (await import('../../sys/mount/mapped-overlay.js')).mountMappedOverlay,
  'fuse-overlayfs-tidy': async () => (await import('./fuse-overlayfs/tasks.js')).tidyUpper,
} satisfies Record<string, () => Promise<(input: never) => unknown>>;
