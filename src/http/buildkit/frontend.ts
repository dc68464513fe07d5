/**
 * Which frontend a build wants. Those of docker/dockerfile are built in, under whatever name a mirror gives them. Any
 * other one is a program in an image, which would need BuildKit's own operations.
 */
import { parseCheckConfig } from '../../build/dockerfile/checks.js';
import { detectSyntax } from '../../build/dockerfile/directives.js';
import { DockerfileError } from '../../build/dockerfile/dockerfile-error.js';
import { featuresOfImage } from '../../build/dockerfile/features.js';
import { normalizeReference } from '../../build/dockerfile/reference.js';
import { internal, messageOf } from '../../errors/engine-error.js';
import { readEpoch } from './export-attrs.js';
import { describeFailure } from './grpc-status.js';
import type { SolveOrder } from './solver.js';

const BUILT_IN = 'dockerfile.v0';
const GATEWAY = 'gateway.v0';
const SYNTAX_ARG = 'build-arg:BUILDKIT_SYNTAX';
const CHECK_ARG = 'build-arg:BUILDKIT_DOCKERFILE_CHECK';
const KNOWN_CAPS = new Set([
  'moby.buildkit.frontend.inputs',
  'moby.buildkit.frontend.subrequests',
  'moby.buildkit.frontend.contexts',
  'moby.buildkit.frontend.gitquerystring',
]);

/** @throws EngineError for an order that cannot be carried out, whatever the Dockerfile says. */
export function requireFrontend({ frontend, attrs }: SolveOrder): void {
  if (frontend === GATEWAY) requireOurs(attrs.get('source') ?? '');
  else if (frontend !== BUILT_IN) throw internal(`frontend ${frontend} not found`);
  for (const cap of (attrs.get('frontend.caps') ?? '').split(',')) {
    if (cap !== '' && !cap.endsWith('+forward') && !KNOWN_CAPS.has(cap))
      throw internal(`unsupported frontend capability ${cap}`);
  }
  readEpoch(attrs.get('build-arg:SOURCE_DATE_EPOCH'));
  parseCheckConfig(attrs.get(CHECK_ARG) ?? '', CHECK_ARG);
}

/**
 * Returns the image of the frontend when the order names it; else the text of the Dockerfile may do so.
 * @throws an error for one that is not here.
 */
export function syntaxOf(
  { frontend, attrs }: SolveOrder,
  dockerfile: { readonly name: string; readonly text: Buffer },
): { readonly syntax?: string } {
  if (frontend === GATEWAY) return { syntax: attrs.get('source') ?? '' };
  const argument = attrs.get(SYNTAX_ARG);
  if (argument !== undefined) {
    const image = argument.trim().split(' ', 1)[0] ?? '';
    try {
      requireOurs(image);
    } catch (error) {
      throw internal(`failed with ${SYNTAX_ARG} = ${argument}: ${messageOf(error)}`, { cause: error });
    }
    return { syntax: image };
  }
  const found = detectSyntax(dockerfile.text.toString());
  if (found === undefined) return {};
  try {
    requireOurs(found.image);
  } catch (error) {
    const lines = { start: found.line, end: found.line };
    throw describeFailure(new DockerfileError(messageOf(error), found.line > 0 ? lines : undefined), dockerfile);
  }
  return {};
}

/** @throws EngineError */
function requireOurs(image: string): void {
  try {
    normalizeReference(image);
  } catch (error) {
    throw internal(`invalid context name ${image}: ${messageOf(error)}`, { cause: error });
  }
  if (featuresOfImage(image) !== undefined) return;
  throw internal(
    `the frontend ${image} is not available: this engine has the one of docker/dockerfile built in, and no other. ` +
      'Name docker/dockerfile or a mirror of it (REGISTRY/.../dockerfile) as the syntax, or leave it out',
  );
}
