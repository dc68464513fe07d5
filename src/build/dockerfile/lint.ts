/** The document of `--call=check`, as clients of BuildKit read it. */
import type { LineRange } from './ast.js';
import type { CheckWarning } from './checks.js';
import type { DockerfileError } from './dockerfile-error.js';
import { type Location, locationOf } from './outline.js';

export interface LintReport {
  readonly warnings:
    | readonly {
        readonly ruleName: string;
        readonly description: string;
        readonly url?: string;
        readonly detail: string;
        readonly location: Location;
      }[]
    | null;
  readonly sources: readonly { readonly filename: string; readonly data?: string; readonly language: string }[];
  readonly buildError?: { readonly message: string; readonly location: Partial<Location> };
}

export function lintReport(
  { name, text }: { readonly name: string; readonly text: Buffer },
  { warnings, error }: { readonly warnings: readonly CheckWarning[]; readonly error: DockerfileError | undefined },
): LintReport {
  return {
    warnings:
      warnings.length === 0
        ? null
        : warnings.map(({ rule, description, url, detail, lines }) => ({
            ruleName: rule,
            description,
            ...(url !== '' && { url }),
            detail,
            location: locationOf(lines),
          })),
    sources: [{ filename: name, ...(text.length > 0 && { data: text.toString('base64') }), language: 'Dockerfile' }],
    ...(error && { buildError: { message: error.message, location: placeOf(error) } }),
  };
}

function placeOf({ lines, others }: DockerfileError): Partial<Location> {
  const all: readonly LineRange[] = [...(lines ? [lines] : []), ...others];
  return all.length === 0 ? {} : { ranges: all.flatMap((range) => locationOf(range).ranges) };
}
