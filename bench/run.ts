/**
 * Runs the measures on both engines by turns in one process. To be run in a network namespace of its own
 * (scripts/bench.mjs).
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BtrfsDisk } from '../test/support/btrfs-disk.js';
import { Authority, type Certificate } from '../test/support/certificates.js';
import { dockerd } from '../test/support/dockerd.js';
import type { EngineKind } from '../test/support/engine.js';
import { engined, type EnginedOptions } from '../test/support/engined.js';
import { buildImage, buildLayer, busyboxEntries, pushImage } from '../test/support/image-builder.js';
import { startRegistry } from '../test/support/registry.js';
import { storeArgs } from '../test/support/tested-store.js';
import { withoutCompaction } from './compaction.js';
import { copy } from './copy.js';
import { ensureBigImage } from './big-image.js';
import { buildDelays, buildTimes } from './build.js';
import { burst } from './burst.js';
import { clients } from './clients.js';
import { eventLoop } from './event-loop.js';
import { exec } from './exec.js';
import { measureFloors } from './floors.js';
import { importTar } from './import.js';
import { JournalledDisk, lacksJournal } from './journalled-disk.js';
import { lifecycle } from './lifecycle.js';
import { logFollow } from './log-follow.js';
import { logs } from './logs.js';
import type { Measure, Setting } from './measure.js';
import { memory, memoryOfMany } from './memory.js';
import { network } from './network.js';
import { published } from './published.js';
import { ensureShapedImage } from './images.js';
import { pullBigImage, pullByMany, pullLargeLayer, pullManyFiles, pullReaders } from './pull.js';
import { pullsAtOnce } from './pulls.js';
import { readOptions } from './options.js';
import { pushBigImage, pushMadeLayer } from './push.js';
import { removeManyLayers } from './removal.js';
import { withRunFilesInMemory } from './run-files.js';
import { keep } from './history.js';
import { report } from './report.js';
import { take, type Contender, type MetricResult } from './sampling.js';
import { requests } from './requests.js';
import { measureScale } from './scale.js';
import { saveLoad } from './save-load.js';
import { startup } from './startup.js';
import { stats } from './stats.js';
import { stopped } from './stopped.js';
import { streams } from './streams.js';
import { drawTimeline } from './timeline.js';
import { tls } from './tls.js';
import { withDriver } from './verdict.js';

const MEASURES: readonly Measure[] = [
  requests,
  clients,
  tls,
  lifecycle,
  exec,
  burst,
  stats,
  stopped,
  pullBigImage,
  pullLargeLayer,
  pullManyFiles,
  pullByMany,
  pullReaders,
  pullsAtOnce,
  removeManyLayers,
  pushBigImage,
  pushMadeLayer,
  saveLoad,
  importTar,
  buildTimes,
  buildDelays,
  eventLoop,
  logs,
  logFollow,
  copy,
  memory,
  memoryOfMany,
  startup,
  streams,
  network,
  published,
];
/** This file is in dist/bench. */
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const RESULTS = join(ROOT, 'bench/results');
/** It is in a sparse file. */
const BTRFS_MEGABYTES = 16_384;

const options = readOptions([...new Set(MEASURES.map(({ name }) => name))]);

function chosenMeasures(): readonly Measure[] {
  return MEASURES.filter(({ name, isForRequest }) => options.only?.includes(name) ?? isForRequest !== true).map(
    (measure) => ({ ...measure, metrics: measure.metrics.map((metric) => withDriver(metric, options.storageDriver)) }),
  );
}

interface ServerCertificate extends Certificate {
  /** dockerd wants to see one even when it asks no client for a certificate. */
  readonly ca: string;
}

function issueIn(dir: string): ServerCertificate {
  const authority = new Authority(dir, 'ca');
  return { ca: authority.cert, ...authority.issueServer() };
}

type EngineName = 'engined' | 'dockerd';

/** In a network namespace of our own the ports are ours to choose. */
function contenders(
  { transport, needsMetrics, isForEnginedAlone, args: own = [] }: Measure,
  certificate: () => ServerCertificate,
): readonly Contender[] {
  const tls = (): string[] =>
    transport === 'tls'
      ? [
          '--tls',
          '--tlsverify=false',
          '--tlscacert',
          certificate().ca,
          '--tlscert',
          certificate().cert,
          '--tlskey',
          certificate().key,
        ]
      : [];
  const args = (engine: EngineName, port: number): string[] => {
    const { storageDriver: store } = options;
    const shared = [...own, ...(store === undefined ? [] : storeArgs(engine, store))];
    return transport === undefined ? shared : [...shared, '--host', `tcp://127.0.0.1:${port}`, ...tls()];
  };
  const scheme = transport === 'tls' ? 'https' : 'http';
  const daemon = (given: EnginedOptions): EngineKind => withRunFilesInMemory(engined(given));
  const build = (name: string, port: number, main: string | undefined): Contender => {
    const address = `127.0.0.1:${port}`;
    const program = main === undefined ? {} : { main };
    return needsMetrics === true
      ? {
          name,
          tcpUrl: `http://${address}/metrics`,
          kind: () => daemon({ args: ['--experimental', '--metrics-addr', address], ...program }),
        }
      : { name, tcpUrl: `${scheme}://${address}`, kind: () => daemon({ args: args('engined', port), ...program }) };
  };
  const ours = build('engined', 23750, undefined);
  if (options.before !== undefined) return [ours, build('before', 23752, options.before)];
  if (needsMetrics === true) return [ours];
  const both: Contender[] = [
    ours,
    {
      name: 'dockerd',
      tcpUrl: `${scheme}://127.0.0.1:23751`,
      kind: () => withRunFilesInMemory(dockerd({ args: args('dockerd', 23751) })),
    },
  ];
  return both.filter(
    ({ name }) =>
      (options.engine === undefined || options.engine === name) && (name === 'engined' || isForEnginedAlone !== true),
  );
}

/** Has the daemons keep their files on a file system that is fit for the measures. Returns what takes it away. */
function useFileSystem(): () => void {
  const isBtrfs = options.storageDriver === 'btrfs';
  if (!isBtrfs && !lacksJournal(tmpdir())) return () => undefined;
  const disk = isBtrfs ? new BtrfsDisk(BTRFS_MEGABYTES) : new JournalledDisk();
  process.env['TMPDIR'] = disk.path;
  return () => disk.remove();
}

async function main(): Promise<void> {
  const measures = chosenMeasures();
  const leaveFileSystem = useFileSystem();
  const leaveCompaction = withoutCompaction();
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  // Making the large image takes a minute: its blobs stay for the next run.
  const registry = await startRegistry({ storeDir: join(ROOT, 'node_modules/.cache/bench-registry') });
  const versions: Record<string, string> = {};
  const results: MetricResult[] = [];
  const certificates = await mkdtemp(join(tmpdir(), 'bench-tls-'));
  let issued: ServerCertificate | undefined;
  const certificate = (): ServerCertificate => (issued ??= issueIn(certificates));
  try {
    const image = `${registry.host}/bench/busybox:1`;
    await pushImage(registry.url, 'bench/busybox', '1', buildImage({ layers: [buildLayer(busyboxEntries())] }));
    const setting = (tcpUrl: string): Setting => ({
      image,
      tcpUrl,
      bigImage: () => ensureBigImage(registry),
      shapedImage: (repository) => ensureShapedImage(registry, repository),
    });
    const { timeline, storageDriver: store } = options;
    if (timeline !== undefined)
      return await drawTimeline(timeline, setting(''), RESULTS, store === undefined ? [] : storeArgs('engined', store));
    if (options.scale) return await measureScale(image);
    if (options.floors) {
      const contender = (measure: Measure): Contender | undefined =>
        contenders(measure, certificate).find(({ name }) => name === 'engined');
      return await measureFloors({ rounds: options.rounds, setting, contender });
    }
    const rounds = options.rounds === undefined ? {} : { rounds: options.rounds };
    for (const measure of measures)
      results.push(...(await take(measure, contenders(measure, certificate), { ...rounds, versions, setting })));
  } finally {
    await registry.stop();
    await rm(certificates, { recursive: true });
    leaveCompaction();
    leaveFileSystem();
  }
  const run = report(results, versions, RESULTS);
  if (options.before === undefined) keep(run, options.history ?? join(RESULTS, 'history.jsonl'), ROOT);
}

await main();
