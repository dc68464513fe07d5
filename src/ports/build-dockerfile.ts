/** The Dockerfile of a build, as it came. */
export interface DockerfileToBuild {
  readonly name: string;
  readonly text: Buffer;
  /** The image of its frontend, which this engine stands for, when another place than the text names it. */
  readonly syntax?: string;
  /** Digest of the vertex that warnings about it belong to; they are not wanted without one. */
  readonly vertex?: string;
}
