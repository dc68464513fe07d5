import { DRIVER_TASKS } from '../storage/drivers/tasks.js';

/** Every task that may run in a worker thread. A module is loaded by the thread that first needs it. */
export const tasks = {
  ...DRIVER_TASKS,
  'apply-difference': async () => (await import('../storage/tasks/apply-difference.js')).applyToTree,
  'block-size': async () => (await import('../inventory/block-counter.js')).blockSize,
  'build-copy': async () => (await import('../build/files/copy-files.js')).copyFiles,
  'build-digest': async () => (await import('../build/files/copy-files.js')).digestSources,
  'build-find-stubs': async () => (await import('../build/files/mount-stubs.js')).findStubs,
  'build-left-out': async () => (await import('../build/files/has-left-out.js')).hasLeftOut,
  'build-note-digests': async () => (await import('../build/files/kept-digests.js')).noteDigests,
  'build-remove-stubs': async () => (await import('../build/files/mount-stubs.js')).removeStubs,
  'build-write-line': async () => (await import('../build/files/write-line.js')).writeLine,
  'build-write-files': async () => (await import('../build/files/write-files.js')).writeFiles,
  changes: async () => (await import('../storage/tasks/changes.js')).changes,
  'attest-files': async () => (await import('../build/outputs/attest-files.js')).attestFiles,
  'compress-layer': async () => (await import('../build/outputs/compress-layer.js')).compressLayer,
  'commit-diff': async () => (await import('../storage/tasks/commit-diff.js')).commitDiff,
  'init-layer': async () => (await import('../storage/tasks/init-layer.js')).fillInitLayer,
  'copy-layer': async () => (await import('../storage/tasks/copy-layer.js')).copyLayer,
  'copy-in': async () => (await import('./copy-in.js')).copyIn,
  'copy-out': async () => (await import('../storage/tasks/copy-out.js')).copyOut,
  'export-directory': async () => (await import('../storage/tasks/copy-out.js')).exportDirectory,
  'extract-layer': async () => (await import('./extract-layer.js')).extractLayer,
  'fetch-url': async () => (await import('../build/sources/fetch-url.js')).fetchUrl,
  'fetch-ahead': async () => (await import('./fetch-ahead.js')).fetchAhead,
  'fetch-layer': async () => (await import('./fetch-layer.js')).fetchLayer,
  'push-layer': async () => (await import('./push-layer.js')).pushLayer,
  'read-archive': async () => (await import('./read-archive.js')).readArchive,
  'mount-volume': async () => (await import('../storage/tasks/mount-volume.js')).mountVolume,
  'pack-rootfs': async () => (await import('../plugins/managed/pack-rootfs.js')).packRootfs,
  'parse-json': async () => (await import('../text/parse-json.js')).parseScannedJson,
  'path-stat': async () => (await import('../storage/tasks/path-stat.js')).pathStat,
  'populate-volume': async () => (await import('../storage/tasks/populate-volume.js')).populateVolume,
  'read-statements': async () => (await import('../build/outputs/read-statements.js')).readStatements,
  'read-stats': async () => (await import('../stats/reader.js')).readStats,
  'relabel-tree': async () => (await import('../storage/tasks/relabel-tree.js')).relabelTree,
  'remove-trees': async () => (await import('../storage/tasks/remove-trees.js')).removeTrees,
  'run-git': async () => (await import('../build/sources/run-git.js')).runGit,
  'seal-diff': async () => (await import('../storage/tasks/seal-diff.js')).sealSettled,
  'settle-layer': async () => (await import('../storage/tasks/settle-layer.js')).settleLayer,
  'show-volume': async () => (await import('../storage/tasks/show-volume.js')).showVolume,
  'stream-tar': async () => (await import('../storage/tasks/stream-tar.js')).streamTar,
  'take-inventory': async () => (await import('../inventory/take-inventory.js')).takeInventory,
  'tar-size': async () => (await import('../storage/tasks/tar-size.js')).tarSize,
  'tree-size': async () => (await import('../storage/tasks/tree-size.js')).treeSize,
  'terminate-tls': async () => (await import('./terminate-tls.js')).terminateTls,
  'unpack-kept': async () => (await import('./fetch-ahead.js')).unpackKept,
  'unpack-source': async () => (await import('../build/sources/unpack-source.js')).unpackSource,
  'verify-layer': async () => (await import('../storage/tasks/verify-layer.js')).verifyLayer,
} satisfies Record<string, () => Promise<(input: never) => unknown>>;

type Tasks = typeof tasks;
type TaskFunction<Name extends TaskName> = Awaited<ReturnType<Tasks[Name]>>;

export type TaskName = keyof Tasks;
export type TaskInput<Name extends TaskName> = Parameters<TaskFunction<Name>>[0];
export type TaskOutput<Name extends TaskName> = Awaited<ReturnType<TaskFunction<Name>>>;
