/** Asks others whether a request of the API may be served, and whether its reply may be sent. */

/** A request as its handler gets it. */
export interface AuthorizationRequest {
  /** Name from the client's certificate; undefined when the client showed none. */
  readonly user: string | undefined;
  readonly method: string;
  /** Path as it was resolved, with the version prefix if the client wrote one, and the query as it was sent. */
  readonly uri: string;
  /** Headers by lower-case name. */
  readonly headers: ReadonlyMap<string, string>;
  /** Undefined when there is no body, or when it must not be shown. */
  readonly body: Uint8Array | undefined;
  /** PEM blocks, the client's own first. */
  readonly peerCertificates: readonly string[];
}

/** A reply before it is sent. */
export interface AuthorizationReply {
  readonly status: number;
  /** Headers by name as they are sent. */
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined for replies that are streams, and for those that are not JSON. */
  readonly body: Uint8Array | undefined;
}

/** A request that may be served. */
export interface AuthorizedRequest {
  /** Asks about the reply. @throws as `Authorizer.authorize`, when it may not be sent. */
  authorizeReply(reply: AuthorizationReply): Promise<void>;
}

export interface Authorizer {
  /** False if nobody has to be asked. */
  readonly active: boolean;
  /**
   * Asks about a request. @throws EngineError forbidden when it is denied, internal when a plugin gives no valid
   * answer.
   */
  authorize(request: AuthorizationRequest): Promise<AuthorizedRequest>;
}
