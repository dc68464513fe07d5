/**
 * BuildKit's door: `/grpc`, where this daemon is the server, and `/session`, where the client serves files and
 * secrets of a build. Both are HTTP/1.1 connections that are upgraded to HTTP/2.
 */
import type { Socket } from 'node:net';
import { invalid } from '../../errors/engine-error.js';
import type { Exchange } from '../exchange.js';
import { route, type Route } from '../route.js';
import { BuildJobs } from './build-jobs.js';
import { ClassicBuilds } from './classic-build.js';
import { contentMethods } from './content-service.js';
import { controlMethods } from './control.js';
import { gatewayMethods } from './gateway.js';
import { GrpcServer } from './grpc-server.js';
import type { BuildHistory } from './history.js';
import { Control } from './proto/gen/control_pb.js';
import { Content } from '../../ports/proto/gen/content_pb.js';
import { LLBBridge } from './proto/gen/gateway_pb.js';
import type { RequestBodies } from './request-bodies.js';
import type { Sessions } from './session.js';
import type { Solver } from './solver.js';
import type { SourceReferences } from './source-references.js';
import type { WorkerFacts } from './worker-record.js';

export interface DoorParts {
  readonly sources: SourceReferences;
  readonly bodies: RequestBodies;
  readonly sessions: Sessions;
  readonly history: BuildHistory;
  readonly solver: Solver;
  readonly worker: WorkerFacts;
}

export class BuildKitDoor {
  readonly #sessions: Sessions;
  readonly #jobs = new BuildJobs();
  readonly #history: BuildHistory;
  /** Made for the first client: what decodes its messages would take a good part of a start. */
  #server: GrpcServer | undefined;
  readonly #makeServer: () => GrpcServer;
  /** Builds that are ordered by `POST /build`. */
  readonly classic: ClassicBuilds;

  constructor({ sessions, history, solver, worker, bodies, sources }: DoorParts) {
    this.#sessions = sessions;
    this.#history = history;
    const jobs = this.#jobs;
    const control = { jobs, sessions, history, solver, worker };
    this.classic = new ClassicBuilds({ ...control, bodies });
    this.#makeServer = () =>
      new GrpcServer([
        [Control, controlMethods(control)],
        [LLBBridge, gatewayMethods({ jobs, solver, sources, worker })],
        [Content, contentMethods(history)],
      ]);
  }

  routes(): Route[] {
    return [
      route('POST', '/grpc', (x) => this.#grpc(x), { hijack: 'after-body', body: 'secret' }),
      route('POST', '/session', (x) => this.#session(x), { hijack: 'after-body', body: 'secret' }),
    ];
  }

  /** Gives all builds up and ends all connections. */
  close(): void {
    this.#jobs.cancelAll();
    this.#sessions.closeAll();
    this.#server?.close();
  }

  /** Resolves when the history of builds is on the disk. */
  settled(): Promise<void> {
    return this.#history.settled();
  }

  async #grpc(x: Exchange): Promise<void> {
    const socket = await upgraded(x);
    this.#server ??= this.#makeServer();
    this.#server.serve(socket);
  }

  async #session(x: Exchange): Promise<void> {
    requireUpgrade(x);
    const id = x.header('x-docker-expose-session-uuid') ?? '';
    const sharedKey = x.header('x-docker-expose-session-sharedkey') ?? '';
    this.#sessions.requireFree(id);
    const socket = await upgraded(x);
    try {
      this.#sessions.add({ id, sharedKey }, socket);
    } catch {
      // Another one of the same name came while plugins were asked.
      socket.destroy();
    }
  }
}

/**
 * Returns the connection for HTTP/2. It is over as a whole when the client has closed its side, as for every server of
 * HTTP/2: of a client that was killed nothing but this end comes. @throws EngineError invalid, in dockerd's words.
 */
async function upgraded(x: Exchange): Promise<Socket> {
  requireUpgrade(x);
  const socket = await x.upgrade('h2c');
  socket.on('error', () => socket.destroy());
  socket.once('end', () => socket.destroy());
  return socket;
}

/** @throws EngineError invalid, in dockerd's words. */
function requireUpgrade(x: Exchange): void {
  const protocol = x.header('upgrade');
  if (protocol === undefined) throw invalid('no upgrade proto in request');
  if (protocol.toLowerCase() !== 'h2c') throw invalid(`protocol ${protocol} not supported`);
}
