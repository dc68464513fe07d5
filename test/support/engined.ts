/** Runs the daemon of this repository for tests and benches. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Engine, type EngineKind } from './engine.js';
import { dockerd } from './dockerd.js';
import { testedBackend } from './tested-backend.js';
import { nameStore, type Store, storeArgs, testedStoreArgs } from './tested-store.js';

/** This file is in dist/test/support. */
const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));

export interface EnginedOptions {
  /** Flags besides those that keep this daemon apart from others. */
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** The program. Default: that of this build. */
  readonly main?: string;
  /** Content of the configuration file. */
  readonly file?: Readonly<Record<string, unknown>>;
}

/** engined with a bridge, for which it finds a free subnet, and a control group of its own. */
export function engined(options: EnginedOptions = {}): EngineKind {
  const { args = [] } = options;
  const mark = `${process.env['ENGINE_TEST_MARK'] ?? 'eng'}${randomBytes(2).toString('hex')}`;
  return {
    name: 'engined',
    isTidy: true,
    isDefault: Object.keys(options).length === 0,
    mark,
    ...(options.env === undefined ? {} : { env: options.env }),
    command(dir, socketPath) {
      mkdirSync(dir, { recursive: true });
      // Without it the configuration of the machine's own engine would apply.
      const configFile = join(dir, 'daemon.json');
      writeFileSync(configFile, JSON.stringify(options.file ?? {}));
      return [
        options.main ?? MAIN,
        '--config-file',
        configFile,
        '--host',
        `unix://${socketPath}`,
        '--data-root',
        join(dir, 'data'),
        '--exec-root',
        join(dir, 'exec'),
        '--pidfile',
        join(dir, 'engine.pid'),
        '--bridge',
        mark,
        '--cgroup-parent',
        `/${mark}`,
        ...(testedBackend() === 'iptables' ? [] : [`--firewall-backend=${testedBackend()}`]),
        ...(nameStore(args) ? [] : testedStoreArgs('engined')),
        ...args,
      ];
    },
  };
}

/** The engine that the environment asks for: tests of compatibility must also pass against the original. */
export function kindUnderTest(): EngineKind {
  return isTestingDockerd() ? dockerd({ args: testedStoreArgs('dockerd') }) : engined();
}

/** The same with a store that is not that of the environment. */
export function kindOn(store: Store): EngineKind {
  return isTestingDockerd()
    ? dockerd({ args: storeArgs('dockerd', store) })
    : engined({ args: storeArgs('engined', store) });
}

export function isTestingDockerd(): boolean {
  return process.env['ENGINE_UNDER_TEST'] === 'dockerd';
}

export function startEngineUnderTest(): Promise<Engine> {
  return Engine.start(kindUnderTest());
}
