/**
 * All that a RUN is given and that depends on no files: its network namespace, its streams, a place in memory and the
 * files of its network. It is made while the RUN before works, so that the next one need not wait for it.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { BuildRequest } from '../../../ports/build.js';
import type { MountPoint } from '../../../ports/container.js';
import type { IdMaps } from '../../../ports/id-maps.js';
import type { Logger } from '../../../ports/logger.js';
import type { NetworkDriver } from '../../../ports/network.js';
import type { ProcessStdio } from '../../../ports/supervisor.js';
import { rootOwner } from '../../../sys/users/id-maps.js';
import type { StdioFactory } from '../../container/deps.js';
import { allDone, Undo } from '../../container/life/undo.js';
import type { StepNetwork } from './entitlements.js';
import { stepHosts, stepResolvConf } from './network-files.js';
import { type StepDefaults, stepHostname } from './step-container.js';
import { bindPoint } from './step-mounts.js';
import { StepSandbox } from './step-network.js';
import { StepPlace } from './step-place.js';

export interface RoomDeps {
  readonly stdio: StdioFactory;
  readonly network: NetworkDriver;
  /** Maps the users of steps to those of this host; undefined: they are the same. */
  readonly userMaps: IdMaps | undefined;
  /** Directory below which each process has its FIFOs. */
  readonly ioRoot: string;
  /** Directory of mounts that are made for others; the start of the daemon clears it. */
  readonly placesRoot: string;
  readonly stepDefaults: () => StepDefaults;
  readonly log: Logger;
}

export interface StepRoom {
  /** That of the container. */
  readonly id: string;
  readonly sandbox: StepSandbox;
  readonly stdio: ProcessStdio;
  readonly place: StepPlace;
  /** The files of the network, which are mounted. */
  readonly given: readonly MountPoint[];
  /** Gives everything back. */
  readonly close: () => Promise<void>;
}

interface NextRoom {
  readonly network: StepNetwork;
  readonly room: Promise<StepRoom>;
}

/** The rooms of a build: those that are taken are given back by who has taken them. */
export class StepRooms {
  #next: NextRoom | undefined;
  #hasEnded = false;

  /** @param isWanted tells whether a RUN may follow that has not begun. */
  constructor(
    private readonly deps: RoomDeps,
    private readonly request: Pick<BuildRequest, 'run' | 'buildArgs'>,
    private readonly isWanted: () => boolean,
  ) {}

  async take(network: StepNetwork): Promise<StepRoom> {
    const next = this.#next;
    if (next?.network !== network) return this.#open(network);
    this.#next = undefined;
    // One that could not be made before may be made now.
    return next.room.catch(() => this.#open(network));
  }

  /** Begins to make the room of the next RUN, if there is one and nobody has begun. Most have the same network. */
  prepare(network: StepNetwork): void {
    if (this.#hasEnded || this.#next !== undefined || !this.isWanted()) return;
    const room = this.#open(network);
    room.catch(() => undefined);
    this.#next = { network, room };
  }

  /** Gives a room back that nobody has taken. None is made afterwards. */
  async end(): Promise<void> {
    this.#hasEnded = true;
    const room = this.#next?.room;
    this.#next = undefined;
    await (await room?.catch(() => undefined))?.close();
  }

  async #open(network: StepNetwork): Promise<StepRoom> {
    const { deps } = this;
    const id = randomBytes(32).toString('hex');
    const undo = new Undo(deps.log);
    try {
      const sandbox = new StepSandbox(deps.network, id, network, deps.userMaps !== undefined, undo);
      const [{ place, given }, stdio] = await allDone([
        this.#openPlace(id, network, undo),
        openStreams(deps, id, undo),
        sandbox.open(),
      ]);
      return { id, sandbox, stdio, place, given, close: () => undo.run() };
    } catch (error) {
      await undo.run();
      throw error;
    }
  }

  async #openPlace(id: string, network: StepNetwork, undo: Undo): Promise<Pick<StepRoom, 'place' | 'given'>> {
    const { deps, request } = this;
    const place = await StepPlace.open(deps.placesRoot, id);
    undo.add('place of a step', () => place.close());
    const owner = rootOwner(deps.userMaps);
    const defaults = deps.stepDefaults();
    const hosts = stepHosts(stepHostname(request), request.run.extraHosts, defaults);
    const resolvConf = await stepResolvConf(deps.network, network, defaults);
    const given = [
      bindPoint(await place.file(hosts, 0o644, owner), '/etc/hosts', false),
      bindPoint(await place.file(resolvConf, 0o644, owner), '/etc/resolv.conf', false),
    ];
    return { place, given };
  }
}

async function openStreams({ stdio, ioRoot }: RoomDeps, id: string, undo: Undo): Promise<ProcessStdio> {
  const made = await stdio.create({
    dir: join(ioRoot, id),
    stdin: false,
    stdout: true,
    stderr: true,
    terminal: false,
  });
  undo.add('streams of a step', () => made.close());
  return made;
}
