/** Asking others whether a request of the API may be served, and whether its reply may be sent. */

/** A request as its handler gets it. */
export interface AuthorizationRequest {
  /** From the client's certificate; undefined when it showed none. */
  readonly user: string | undefined;
  readonly method: string;
  /** Path as it was resolved, with the version prefix if the client wrote one, and the query as it was sent. */
  readonly uri: string;
  /** By lower-case name. */
  readonly headers: ReadonlyMap<string, string>;
  /** Undefined when there is none, and where it is not to be shown. */
  readonly body: Uint8Array | undefined;
  /** PEM blocks, the client's own first. */
  readonly peerCertificates: readonly string[];
}

/** A reply before it is sent. */
export interface AuthorizationReply {
  readonly status: number;
  /** By name as sent. */
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined for replies that are streams, and for those that are not JSON. */
  readonly body: Uint8Array | undefined;
}

/** A request that may be served. */
export interface AuthorizedRequest {
  /** @throws as `Authorizer.authorize`, when the reply may not be sent. */
  authorizeReply(reply: AuthorizationReply): Promise<void>;
}

export interface Authorizer {
  /** False: nobody has to be asked. */
  readonly active: boolean;
  /**
   * @throws EngineError forbidden when it is denied, internal when somebody who has to be asked gives no valid answer.
   */
  authorize(request: AuthorizationRequest): Promise<AuthorizedRequest>;
}
