/** Daemons with network flags, and the scene in which tests look at what the flags do. */
import { randomBytes } from 'node:crypto';
import { removeContainers } from './container-removal.js';
import { engineOk } from './engine-commands.js';
import { Engine } from './engine.js';
import { engined } from './engined.js';
import { SEEDED_IMAGE, withImage } from './seed.js';

/** Those of the daemon's flags that are about networks. */
const NETWORK_FLAGS = [
  'bip',
  'bip6',
  'bridge',
  'default-address-pool',
  'default-gateway',
  'default-gateway-v6',
  'default-network-opt',
  'dns',
  'dns-opt',
  'dns-search',
  'firewall-backend',
  'fixed-cidr',
  'fixed-cidr-v6',
  'host-gateway-ip',
  'icc',
  'ip',
  'ip-forward',
  'ip-forward-no-drop',
  'ip-masq',
  'ip6tables',
  'iptables',
  'ipv6',
  'mtu',
  'network-control-plane-mtu',
  'userland-proxy',
  'userland-proxy-path',
];

/** A test looks at this: the daemon, and the kernel through the programs that operators use. */
export class Scene {
  constructor(
    readonly engine: Engine,
    readonly bridge: string,
    readonly image: string,
  ) {}

  run(name: string, ...options: readonly string[]): Promise<string> {
    return engineOk(this.engine, ['run', '-d', '--name', name, ...options, this.image, 'sleep', '600']);
  }

  inside(name: string, ...command: readonly string[]): Promise<string> {
    return engineOk(this.engine, ['exec', name, ...command]);
  }
}

/** Daemons of a test file, each with flags of its own, and a note of the flags that were tried. */
export class FlaggedDaemons {
  readonly #tried = new Set<string>();

  /** Those of the flags about networks that no test has started a daemon with. */
  get untried(): readonly string[] {
    return NETWORK_FLAGS.filter((flag) => !this.#tried.has(flag));
  }

  /** Runs `body` with a daemon of these flags, which must leave nothing behind. */
  async with(args: readonly string[], body: (scene: Scene) => Promise<void>): Promise<void> {
    for (const flag of args) if (flag.startsWith('--')) this.#tried.add(flag.replace(/^--|=.*$/g, ''));
    const bridge = `engf${randomBytes(3).toString('hex')}`;
    const kind = engined({ args: [...(args.includes('--bridge') ? [] : ['--bridge', bridge]), ...args] });
    const engine = await Engine.start(await withImage(kind));
    try {
      await body(new Scene(engine, bridge, SEEDED_IMAGE));
      await removeContainers(engine);
      await engine.close();
    } finally {
      await engine.discard();
    }
  }
}
